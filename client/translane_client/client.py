"""The blocking client."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar, Self, Unpack, overload

import grpc

from translane.options import ScoreOptions, TranslateOptions
from translane.results import ModelInfo, Score, ServerInfo, Translation
from translane.streams import TranslationStream
from translane_client._base import BaseClient
from translane_client._batches import batches
from translane_client._calls import RunningCalls
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
from translane_client._tracing import in_context


class Client(BaseClient):
    """Translates over gRPC. Threads may share a client; it is a context manager.

    Args:
        address: HOST:PORT of the server, with 50051 as the default port; or several, as a sequence or with commas
            between them; or any target that gRPC understands; or a Connection. Calls take several servers in turn.
        timeout: Default deadline of a call, in seconds. None or math.inf: no deadline.
        connect_timeout: Seconds for a connection to be made. A call that gets none within this time is not tried again.
        retry: When to try again. None: the defaults of RetryPolicy.
        batch_size: Most texts in one request. None: 64, or less where the server's limits are lower.
        concurrency: Most requests that one call has under way at a time.
        clock: Monotonic seconds, for tests.
        jitter: Gives random numbers from 0 to 1, for tests.
        sleep: Waits the given number of seconds, for tests.
        connection: TLS and the caller's token, such as `ca="ca.pem"`; ConnectionOptions describes them.

    Every method raises TranslaneError where the call fails, TypeError or ValueError where an argument makes no sense,
    and RuntimeError where the client is closed.
    """

    _grpc: ClassVar[Any] = grpc

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancels the calls under way and closes the connection. May be called again."""
        for channel in self._closing():
            channel.close()

    def _discard(self, channel: Any) -> None:
        channel.close()

    @overload
    def translate(self, texts: str, **request: Unpack[TranslateOptions]) -> Translation: ...  # type: ignore[overload-overlap]  # a str is an iterable of str as well
    @overload
    def translate(self, texts: Iterable[str], **request: Unpack[TranslateOptions]) -> list[Translation]: ...
    def translate(
        self, texts: str | Iterable[str], **request: Unpack[TranslateOptions]
    ) -> Translation | list[Translation]:
        """Translates one text, or a list of texts in order.

        Args:
            texts: One text, or any number of texts; a long list travels in several requests.
            request: What else the request says, such as `model="zh-en", beam_size=4`; TranslateOptions and
                DecodingOptions describe it.
        """
        settings, timeout = RequestSettings.of(request)
        job = translate_job(settings)
        if isinstance(texts, str):
            with RunningCalls(self._sleep) as calls:
                return self._run(calls, job.call(Batch([texts], 0)), self._deadline(timeout))[0]
        return self._all(job, texts, timeout)

    def translate_iter(self, texts: Iterable[str], **request: Unpack[TranslateOptions]) -> Iterator[Translation]:
        """Translates any number of texts in order and bounded memory.

        The arguments are those of `translate`, but `timeout` is the deadline of each request. The client reads at most
        batch_size · concurrency texts ahead of the last translation handed out. While the server's queue is full, the
        client waits up to the deadline. The error of a failed request is raised after the translations of all
        requests before it.
        """
        if isinstance(texts, str):
            raise TypeError("translate_iter() takes many texts; translate() takes one")
        settings, timeout = RequestSettings.of(request)
        return self._lazily(translate_job(settings), texts, timeout)

    def translate_stream(self, text: str, **request: Unpack[TranslateOptions]) -> TranslationStream:
        """Translates one text and hands out the translation while it is being decoded.

        The arguments are those of `translate`; `timeout` is the deadline of the whole stream. The deltas concatenate
        to the translation, and no delta ends within a character. Beam search hands out what all beams agree on. The
        client retries as `translate` does. A stream that broke off goes on where it was, if its repetition begins with
        the same text; otherwise the client raises Unavailable.
        """
        settings, timeout = RequestSettings.of(request)
        call, received = stream_call(text, settings)
        self._deadline(timeout)  # refuses a wrong timeout now, and not at the first delta
        calls = RunningCalls(self._sleep)
        return TranslationStream(self._deltas(calls, call, received, timeout), received, calls.stop)

    def score(self, pairs: Iterable[tuple[str, str]], **request: Unpack[ScoreOptions]) -> list[Score]:
        """Scores given translations, in order: how probable the model finds each.

        Args:
            pairs: Any number of (source, target); a long list travels in several requests.
            request: What else the request says; ScoreOptions describes it.
        """
        return self._all(score_job(request), pairs, request.get("timeout"))

    def score_iter(self, pairs: Iterable[tuple[str, str]], **request: Unpack[ScoreOptions]) -> Iterator[Score]:
        """Scores any number of pairs in order and bounded memory, as `translate_iter` does with texts."""
        return self._lazily(score_job(request), pairs, request.get("timeout"))

    def server_info(self, *, timeout: float | None = None) -> ServerInfo:
        """The server's version, limits and models; `timeout` is a deadline in seconds."""
        with RunningCalls(self._sleep) as calls:
            return self._run(calls, server_call(), self._deadline(timeout))

    def models(self, *, timeout: float | None = None) -> list[ModelInfo]:
        """The models that the server has loaded; `timeout` is a deadline in seconds."""
        return list(self.server_info(timeout=timeout).models)

    def _all(self, job: Job[Item, Answer], items: Iterable[Item], timeout: float | None) -> list[Answer]:
        """The answers to all items of a list, within one deadline."""
        deadline = self._deadline(timeout)
        items = list(items)
        size = 1 if len(items) == 1 else None
        return list(self._batches(job, items, lambda: deadline, size, patient=False)) if items else []

    def _lazily(self, job: Job[Item, Answer], items: Iterable[Item], timeout: float | None) -> Iterator[Answer]:
        """The answers as they are asked for; each request has a deadline of its own."""
        self._deadline(timeout)  # refuses a wrong timeout now, and not at the first answer
        return self._batches(job, items, lambda: self._deadline(timeout), None, patient=True)

    def _batches(
        self,
        job: Job[Item, Answer],
        items: Iterable[Item],
        deadline: Callable[[], Deadline],
        size: int | None,
        *,
        patient: bool,
    ) -> Iterator[Answer]:
        """Keeps up to `concurrency` batches under way; hands out the oldest batch's answers first."""
        window: deque[Future[list[Answer]]] = deque()
        with ThreadPoolExecutor(self._concurrency, "translane") as pool, RunningCalls(self._sleep) as calls:
            size = size or self._batch_size or self._adopt_limits(self._run(calls, server_call(), deadline()))
            for batch in batches(items, size, job.size_of, job.overhead):
                window.append(pool.submit(in_context(self._run_batch), calls, job, batch, deadline(), patient))
                if len(window) == self._concurrency:
                    yield from window.popleft().result()
            while window:
                yield from window.popleft().result()

    def _run_batch(
        self, calls: RunningCalls, job: Job[Item, Answer], batch: Batch[Item], deadline: Deadline, patient: bool
    ) -> list[Answer]:
        return self._run(calls, job.call(batch), deadline, patient)

    def _run(self, calls: RunningCalls, call: Call[Answer], deadline: Deadline, patient: bool = False) -> Answer:
        exchange = self._exchange(call, deadline, patient)
        while True:
            try:
                response = calls.result(self._method(call), call.request, exchange.timeout(), self._metadata())
                return call.parse(response)
            except grpc.RpcError as failure:
                calls.sleep(exchange.pause_after(failure))

    def _deltas(
        self, calls: RunningCalls, call: Call[str], received: ReceivedStream, timeout: float | None
    ) -> Iterator[str]:
        """The deltas that are not empty. No call stays under way, wherever the caller leaves the iteration."""
        with calls:
            exchange = self._exchange(call, self._deadline(timeout))
            while True:
                received.begin()
                try:
                    method, metadata = self._method(call), self._metadata()
                    for response in calls.messages(method, call.request, exchange.timeout(), metadata):
                        if delta := call.parse(response):
                            yield delta
                    received.end()
                    return
                except grpc.RpcError as failure:
                    calls.sleep(exchange.pause_after(failure))
