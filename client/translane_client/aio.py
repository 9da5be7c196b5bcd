"""The asyncio client."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Self, Unpack, overload

import grpc
import grpc.aio

from translane.errors import Cancelled
from translane.options import ScoreOptions, TranslateOptions
from translane.results import ModelInfo, Score, ServerInfo, Translation
from translane.streams import AsyncTranslationStream
from translane_client._base import BaseClient
from translane_client._batches import async_batches
from translane_client._exchange import Deadline
from translane_client._requests import (
    Answer,
    Batch,
    Call,
    Item,
    Job,
    RequestSettings,
    score_job,
    server_call,
    stream_call,
    translate_job,
)
from translane_client._responses import ReceivedStream


class AsyncClient(BaseClient):
    """`Client` for asyncio: the same arguments, methods and errors; an asynchronous context manager.

    A client belongs to one event loop. Cancelling a task that awaits a method cancels the method's calls on the server.
    """

    _grpc: ClassVar[Any] = grpc.aio

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancels the calls under way and closes the connection. May be called again."""
        for channel in self._closing():
            await channel.close(grace=None)
        await asyncio.gather(*self._discarding)

    def _discard(self, channel: Any) -> None:
        task = asyncio.get_running_loop().create_task(channel.close(grace=None))
        self._discarding.add(task)  # the event loop alone would forget the task
        task.add_done_callback(self._discarding.discard)

    @overload
    async def translate(self, texts: str, **request: Unpack[TranslateOptions]) -> Translation: ...  # type: ignore[overload-overlap]  # a str is an iterable of str as well
    @overload
    async def translate(self, texts: Iterable[str], **request: Unpack[TranslateOptions]) -> list[Translation]: ...
    async def translate(
        self, texts: str | Iterable[str], **request: Unpack[TranslateOptions]
    ) -> Translation | list[Translation]:
        """Translates one text, or a list of texts in order, as `Client.translate` does."""
        settings, timeout = RequestSettings.of(request)
        job = translate_job(settings)
        if isinstance(texts, str):
            return (await self._run(job.call(Batch([texts], 0)), self._deadline(timeout)))[0]
        return await self._all(job, texts, timeout)

    def translate_iter(
        self, texts: Iterable[str] | AsyncIterable[str], **request: Unpack[TranslateOptions]
    ) -> AsyncIterator[Translation]:
        """Translates any number of texts in order and bounded memory, as `Client.translate_iter` does."""
        if isinstance(texts, str):
            raise TypeError("translate_iter() takes many texts; translate() takes one")
        settings, timeout = RequestSettings.of(request)
        return self._lazily(translate_job(settings), texts, timeout)

    def translate_stream(self, text: str, **request: Unpack[TranslateOptions]) -> AsyncTranslationStream:
        """Hands out the translation of one text while it is being decoded, as `Client.translate_stream` does."""
        settings, timeout = RequestSettings.of(request)
        call, received = stream_call(text, settings)
        self._deadline(timeout)  # refuses a wrong timeout now, and not at the first delta
        running = _RunningStream()
        return AsyncTranslationStream(self._deltas(running, call, received, timeout), received, running.stop)

    async def score(self, pairs: Iterable[tuple[str, str]], **request: Unpack[ScoreOptions]) -> list[Score]:
        """Scores given translations, in order, as `Client.score` does."""
        return await self._all(score_job(request), pairs, request.get("timeout"))

    def score_iter(
        self, pairs: Iterable[tuple[str, str]] | AsyncIterable[tuple[str, str]], **request: Unpack[ScoreOptions]
    ) -> AsyncIterator[Score]:
        """Scores any number of pairs in order and bounded memory, as `Client.score_iter` does."""
        return self._lazily(score_job(request), pairs, request.get("timeout"))

    async def server_info(self, *, timeout: float | None = None) -> ServerInfo:  # noqa: ASYNC109 - travels to the server
        """The server's version, limits and models; `timeout` is a deadline in seconds."""
        return await self._run(server_call(), self._deadline(timeout))

    async def models(self, *, timeout: float | None = None) -> list[ModelInfo]:  # noqa: ASYNC109 - travels to the server
        """The models that the server has loaded; `timeout` is a deadline in seconds."""
        return list((await self.server_info(timeout=timeout)).models)

    async def _all(
        self,
        job: Job[Item, Answer],
        items: Iterable[Item],
        timeout: float | None,  # noqa: ASYNC109 - travels to the server
    ) -> list[Answer]:
        """The answers to all items of a list, within one deadline."""
        deadline = self._deadline(timeout)
        items = list(items)
        if not items:
            return []
        size = 1 if len(items) == 1 else None
        return [each async for each in self._batches(job, items, lambda: deadline, size, patient=False)]

    def _lazily(
        self, job: Job[Item, Answer], items: Iterable[Item] | AsyncIterable[Item], timeout: float | None
    ) -> AsyncIterator[Answer]:
        """The answers as they are asked for; each request has a deadline of its own."""
        self._deadline(timeout)  # refuses a wrong timeout now, and not at the first answer
        return self._batches(job, items, lambda: self._deadline(timeout), None, patient=True)

    async def _batches(
        self,
        job: Job[Item, Answer],
        items: Iterable[Item] | AsyncIterable[Item],
        deadline: Callable[[], Deadline],
        size: int | None,
        *,
        patient: bool,
    ) -> AsyncIterator[Answer]:
        """Keeps up to `concurrency` batches under way; hands out the oldest batch's answers first."""
        window: deque[asyncio.Task[list[Answer]]] = deque()
        try:
            size = size or self._batch_size or self._adopt_limits(await self._run(server_call(), deadline()))
            async for batch in async_batches(items, size, job.size_of, job.overhead):
                window.append(asyncio.create_task(self._run_batch(job, batch, deadline(), patient)))
                if len(window) == self._concurrency:
                    for answer in await window[0]:
                        yield answer
                    window.popleft()
            for task in window:
                for answer in await task:
                    yield answer
        finally:
            for task in window:
                task.cancel()
            await asyncio.gather(*window, return_exceptions=True)

    async def _run_batch(
        self, job: Job[Item, Answer], batch: Batch[Item], deadline: Deadline, patient: bool
    ) -> list[Answer]:
        return await self._run(job.call(batch), deadline, patient)

    async def _run(self, call: Call[Answer], deadline: Deadline, patient: bool = False) -> Answer:
        exchange = self._exchange(call, deadline, patient)
        while True:
            try:
                with self._closing_as_cancelled():
                    method, metadata = self._method(call), self._metadata()
                    return call.parse(await method(call.request, timeout=exchange.timeout(), metadata=metadata))
            except grpc.RpcError as failure:
                await self._pause(exchange.pause_after(failure))

    async def _deltas(
        self,
        running: _RunningStream,
        call: Call[str],
        received: ReceivedStream,
        timeout: float | None,  # noqa: ASYNC109 - travels to the server
    ) -> AsyncGenerator[str, None]:
        """The deltas that are not empty. No call stays under way, wherever the caller leaves the iteration."""
        exchange = self._exchange(call, self._deadline(timeout))
        while True:
            received.begin()
            try:
                with self._closing_as_cancelled(running):
                    method, metadata = self._method(call), self._metadata()
                    running.call = method(call.request, timeout=exchange.timeout(), metadata=metadata)
                    try:
                        async for response in running.call:
                            if delta := call.parse(response):
                                yield delta
                    finally:
                        running.call.cancel()
                received.end()
                return
            except grpc.RpcError as failure:
                await self._pause(exchange.pause_after(failure))

    async def _pause(self, seconds: float) -> None:
        await (self._sleep or asyncio.sleep)(seconds)

    @contextmanager
    def _closing_as_cancelled(self, running: _RunningStream | None = None) -> Iterator[None]:
        """Raises Cancelled in place of gRPC's own errors where the client or the stream was closed during a call."""
        try:
            if running is not None and running.stopped:
                raise Cancelled("the call was cancelled")
            yield
        except grpc.aio.UsageError as error:  # gRPC's way to say that the channel is closed
            raise Cancelled("the client was closed") from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and not task.cancelling():  # the call was cancelled, not the task
                if self._closed:
                    raise Cancelled("the client was closed") from error
                if running is not None and running.stopped:
                    raise Cancelled("the call was cancelled") from error
            raise


class _RunningStream:
    """The call that a stream has under way; another task may stop it."""

    def __init__(self) -> None:
        self.call: Any = None
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True
        if self.call is not None:
            self.call.cancel()
