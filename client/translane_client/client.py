"""The blocking client."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self, Unpack, overload

import grpc

from translane.v1 import translation_pb2 as pb
from translane_client._core import CHANNEL_OPTIONS, BaseClient, Deadline, batches, settings_message
from translane_client._messages import Answer, Batch, Call, server_call, stub_of, translate_call
from translane_client.errors import Cancelled
from translane_client.options import DecodingOptions
from translane_client.retry import RetryPolicy
from translane_client.types import ModelInfo, ServerInfo, Translation


class Client(BaseClient):
    """Translates over gRPC. Safe to share between threads; a context manager.

    Args:
        address: HOST:PORT of the server (port 50051 where left out), or any target gRPC understands.
        credentials: TLS credentials, as `grpc.ssl_channel_credentials()` makes them; plain text without.
        timeout: Deadline in seconds of calls that set none themselves; None or math.inf for no deadline.
        retry: When to try again; None for the defaults of RetryPolicy.
        batch_size: Most texts in one request; None for 64, or less where the server's limits say so.
        concurrency: Most requests of one call under way at a time.
        clock: Monotonic seconds, for tests.
        jitter: Random numbers from 0 to 1, for tests.
        sleep: Waits that many seconds, for tests.

    Every method raises a TranslaneError where the call fails, TypeError or ValueError where an argument makes no
    sense, and RuntimeError on a closed client.
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
        sleep: Callable[[float], object] | None = None,
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
        self._sleep = sleep
        if credentials is None:
            self._channel = grpc.insecure_channel(self.address, options=CHANNEL_OPTIONS)
        else:
            self._channel = grpc.secure_channel(self.address, credentials, options=CHANNEL_OPTIONS)
        self._stub = stub_of(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancels what is under way and closes the connection. May be called again."""
        self._closed = True
        self._channel.close()

    @overload
    def translate(  # type: ignore[overload-overlap]  # a str is an iterable of str as well
        self,
        texts: str,
        *,
        model: str = ...,
        source_language: str = ...,
        target_language: str = ...,
        priority: int = ...,
        timeout: float | None = ...,
        **options: Unpack[DecodingOptions],
    ) -> Translation: ...
    @overload
    def translate(
        self,
        texts: Iterable[str],
        *,
        model: str = ...,
        source_language: str = ...,
        target_language: str = ...,
        priority: int = ...,
        timeout: float | None = ...,
        **options: Unpack[DecodingOptions],
    ) -> list[Translation]: ...
    def translate(
        self,
        texts: str | Iterable[str],
        *,
        model: str = "",
        source_language: str = "",
        target_language: str = "",
        priority: int = 0,
        timeout: float | None = None,
        **options: Unpack[DecodingOptions],
    ) -> Translation | list[Translation]:
        """Translates one text, or a list of texts in order.

        Args:
            texts: One sentence, or any number of them; a long list travels in several requests.
            model: A model's name; may be left out where the server has one model.
            source_language: BCP-47 tag; may be left out where the model has one language on that side.
            target_language: The same for the other side.
            priority: Waiting sentences of a higher priority are translated first.
            timeout: Deadline in seconds of the whole call, retries included; None for the client's.
            options: Decoding options by name, such as `max_length=100`.
        """
        settings = settings_message(model, source_language, target_language, priority, options)
        deadline = self._deadline(timeout)
        if isinstance(texts, str):
            with _Calls(self._sleep) as calls:
                return self._translate_batch(calls, settings, Batch([texts], 0), deadline)[0]
        texts = list(texts)
        size = 1 if len(texts) == 1 else None
        return list(self._translate_batches(texts, settings, lambda: deadline, size, patient=False)) if texts else []

    def translate_iter(
        self,
        texts: Iterable[str],
        *,
        model: str = "",
        source_language: str = "",
        target_language: str = "",
        priority: int = 0,
        timeout: float | None = None,
        **options: Unpack[DecodingOptions],
    ) -> Iterator[Translation]:
        """Translates any number of texts in order and bounded memory.

        At most batch_size · concurrency texts are read ahead of the translation handed out last. `timeout` is that
        of each request, and a full queue is waited for as long, or for ever where there is none; otherwise as
        `translate`. A failed request is raised after the translations of those before it.
        """
        if isinstance(texts, str):
            raise TypeError("translate_iter() takes many texts; translate() takes one")
        settings = settings_message(model, source_language, target_language, priority, options)
        self._deadline(timeout)  # refuses a wrong timeout now and not at the first translation
        return self._translate_batches(texts, settings, lambda: self._deadline(timeout), None, patient=True)

    def server_info(self, *, timeout: float | None = None) -> ServerInfo:
        """The server's version, limits and models."""
        with _Calls(self._sleep) as calls:
            return self._run(calls, server_call(), self._deadline(timeout))

    def models(self, *, timeout: float | None = None) -> list[ModelInfo]:
        """The models the server has loaded."""
        return list(self.server_info(timeout=timeout).models)

    def _translate_batches(
        self,
        texts: Iterable[str],
        settings: pb.TranslateRequest,
        deadline: Callable[[], Deadline],
        size: int | None,
        *,
        patient: bool,
    ) -> Iterator[Translation]:
        """Keeps up to `concurrency` batches under way; hands out the oldest one's translations first."""
        window: deque[Future[list[Translation]]] = deque()
        with ThreadPoolExecutor(self._concurrency, "translane") as pool, _Calls(self._sleep) as calls:
            size = size or self._batch_size or self._adopt_limits(self._run(calls, server_call(), deadline()))
            for batch in batches(texts, size):
                window.append(pool.submit(self._translate_batch, calls, settings, batch, deadline(), patient))
                if len(window) == self._concurrency:
                    yield from window.popleft().result()
            while window:
                yield from window.popleft().result()

    def _translate_batch(
        self, calls: _Calls, settings: pb.TranslateRequest, batch: Batch, deadline: Deadline, patient: bool = False
    ) -> list[Translation]:
        return self._run(calls, translate_call(settings, batch), deadline, patient)

    def _run(self, calls: _Calls, call: Call[Answer], deadline: Deadline, patient: bool = False) -> Answer:
        exchange = self._exchange(call, deadline, patient)
        method = getattr(self._stub, call.method)
        while True:
            try:
                return call.parse(calls.result(method, call.request, exchange.timeout()))
            except grpc.RpcError as failure:
                calls.sleep(exchange.pause_after(failure))


class _Calls:
    """The calls one method has under way: leaving it, by an error or Ctrl-C too, leaves none of them behind."""

    def __init__(self, sleep: Callable[[float], object] | None) -> None:
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._running: set[Any] = set()
        self.sleep = sleep or self._stopped.wait  # which ends at once when the method is left

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._stopped.set()
            running = list(self._running)
        for future in running:
            future.cancel()

    def result(self, method: Any, request: object, timeout: float | None) -> Any:
        """The response; raises what gRPC raises, and Cancelled where another thread has left the method."""
        with self._lock:
            if self._stopped.is_set():
                raise Cancelled("the call was cancelled")
            try:
                future = method.future(request, timeout=timeout)
            except ValueError as error:  # how grpc says that the channel is closed
                raise Cancelled("the client was closed") from error
            self._running.add(future)
        try:
            return future.result()
        except grpc.FutureCancelledError as error:
            raise Cancelled("the call was cancelled") from error
        finally:
            with self._lock:
                self._running.discard(future)
