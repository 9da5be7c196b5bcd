"""The asyncio client."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Self, Unpack, overload

import grpc
import grpc.aio

from translane.v1 import translation_pb2 as pb
from translane_client._core import CHANNEL_OPTIONS, BaseClient, Deadline, Gatherer, batches, settings_message
from translane_client._messages import Answer, Batch, Call, server_call, stub_of, translate_call
from translane_client.errors import Cancelled
from translane_client.options import DecodingOptions
from translane_client.retry import RetryPolicy
from translane_client.types import ModelInfo, ServerInfo, Translation


class AsyncClient(BaseClient):
    """`Client` for asyncio: the same arguments, methods and errors; an asynchronous context manager.

    One client belongs to one event loop. Cancelling a task that awaits a method cancels its calls on the server.
    """

    def __init__(
        self,
        address: str = "localhost:50051",
        *,
        credentials: grpc.ChannelCredentials | None = None,
        timeout: float | None = None,
        retry: RetryPolicy | None = None,
        batch_size: int | None = None,
        concurrency: int = 4,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        super().__init__(
            address,
            timeout=timeout,
            retry=retry,
            batch_size=batch_size,
            concurrency=concurrency,
            clock=clock,
            jitter=jitter,
        )
        self._credentials = credentials
        self._sleep = sleep
        self._channel: grpc.aio.Channel | None = None  # opened by the first call: it belongs to the running loop
        self._stub: Any = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancels what is under way and closes the connection. May be called again."""
        self._closed = True
        if self._channel is not None:
            await self._channel.close(grace=None)

    @overload
    async def translate(  # type: ignore[overload-overlap]  # a str is an iterable of str as well
        self,
        texts: str,
        *,
        model: str = ...,
        source_language: str = ...,
        target_language: str = ...,
        priority: int = ...,
        timeout: float | None = ...,  # noqa: ASYNC109 - a deadline that the server is told
        **options: Unpack[DecodingOptions],
    ) -> Translation: ...
    @overload
    async def translate(
        self,
        texts: Iterable[str],
        *,
        model: str = ...,
        source_language: str = ...,
        target_language: str = ...,
        priority: int = ...,
        timeout: float | None = ...,  # noqa: ASYNC109 - a deadline that the server is told
        **options: Unpack[DecodingOptions],
    ) -> list[Translation]: ...
    async def translate(
        self,
        texts: str | Iterable[str],
        *,
        model: str = "",
        source_language: str = "",
        target_language: str = "",
        priority: int = 0,
        timeout: float | None = None,  # noqa: ASYNC109 - a deadline that the server is told
        **options: Unpack[DecodingOptions],
    ) -> Translation | list[Translation]:
        """Translates one text, or a list of texts in order; see `Client.translate`."""
        settings = settings_message(model, source_language, target_language, priority, options)
        deadline = self._deadline(timeout)
        if isinstance(texts, str):
            return (await self._translate_batch(settings, Batch([texts], 0), deadline))[0]
        texts = list(texts)
        if not texts:
            return []
        size = 1 if len(texts) == 1 else None
        return [each async for each in self._translate_batches(texts, settings, lambda: deadline, size, patient=False)]

    def translate_iter(
        self,
        texts: Iterable[str] | AsyncIterable[str],
        *,
        model: str = "",
        source_language: str = "",
        target_language: str = "",
        priority: int = 0,
        timeout: float | None = None,
        **options: Unpack[DecodingOptions],
    ) -> AsyncIterator[Translation]:
        """Translates any number of texts in order and bounded memory; see `Client.translate_iter`."""
        if isinstance(texts, str):
            raise TypeError("translate_iter() takes many texts; translate() takes one")
        settings = settings_message(model, source_language, target_language, priority, options)
        self._deadline(timeout)  # refuses a wrong timeout now and not at the first translation
        return self._translate_batches(texts, settings, lambda: self._deadline(timeout), None, patient=True)

    async def server_info(self, *, timeout: float | None = None) -> ServerInfo:  # noqa: ASYNC109 - as above
        """The server's version, limits and models."""
        return await self._run(server_call(), self._deadline(timeout))

    async def models(self, *, timeout: float | None = None) -> list[ModelInfo]:  # noqa: ASYNC109 - as above
        """The models the server has loaded."""
        return list((await self.server_info(timeout=timeout)).models)

    async def _translate_batches(
        self,
        texts: Iterable[str] | AsyncIterable[str],
        settings: pb.TranslateRequest,
        deadline: Callable[[], Deadline],
        size: int | None,
        *,
        patient: bool,
    ) -> AsyncIterator[Translation]:
        """Keeps up to `concurrency` batches under way; hands out the oldest one's translations first."""
        window: deque[asyncio.Task[list[Translation]]] = deque()
        try:
            size = size or self._batch_size or self._adopt_limits(await self._run(server_call(), deadline()))
            async for batch in _batches(texts, size):
                window.append(asyncio.create_task(self._translate_batch(settings, batch, deadline(), patient)))
                if len(window) == self._concurrency:
                    for translation in await window[0]:
                        yield translation
                    window.popleft()
            for task in window:
                for translation in await task:
                    yield translation
        finally:
            for task in window:
                task.cancel()
            await asyncio.gather(*window, return_exceptions=True)

    async def _translate_batch(
        self, settings: pb.TranslateRequest, batch: Batch, deadline: Deadline, patient: bool = False
    ) -> list[Translation]:
        return await self._run(translate_call(settings, batch), deadline, patient)

    async def _run(self, call: Call[Answer], deadline: Deadline, patient: bool = False) -> Answer:
        exchange = self._exchange(call, deadline, patient)
        method = getattr(self._opened(), call.method)
        while True:
            try:
                return call.parse(await method(call.request, timeout=exchange.timeout()))
            except grpc.RpcError as failure:
                await self._sleep(exchange.pause_after(failure))
            except grpc.aio.UsageError as error:  # how grpc says that the channel is closed
                raise Cancelled("the client was closed") from error
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if self._closed and task is not None and not task.cancelling():
                    raise Cancelled("the client was closed") from error  # the call was cancelled, not the task
                raise

    def _opened(self) -> Any:
        if self._channel is None:
            if self._credentials is None:
                self._channel = grpc.aio.insecure_channel(self.address, options=CHANNEL_OPTIONS)
            else:
                self._channel = grpc.aio.secure_channel(self.address, self._credentials, options=CHANNEL_OPTIONS)
            self._stub = stub_of(self._channel)
        return self._stub


async def _batches(texts: Iterable[str] | AsyncIterable[str], size: int) -> AsyncIterator[Batch]:
    """`_core.batches` for either kind of iterable."""
    if not isinstance(texts, AsyncIterable):
        for batch in batches(texts, size):
            yield batch
        return
    gatherer = Gatherer(size)
    async for text in texts:
        for batch in gatherer.add(text):
            yield batch
    for batch in gatherer.rest():
        yield batch
