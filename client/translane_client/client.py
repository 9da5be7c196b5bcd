"""The blocking client."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import Any, ClassVar, Self, Unpack, overload

import grpc

from translane.errors import Cancelled
from translane.options import DocumentOptions, ScoreOptions, TranslateOptions
from translane.results import DocumentProgress, ModelInfo, Score, ServerInfo, TranslatedDocument, Translation
from translane.streams import TranslationStream
from translane_client._core import END, BaseClient, Hand, Next, Open, Send, Sleep, Start, Steps
from translane_client._requests import document_call, score_job, stream_call, translate_job


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
        many = [texts] if isinstance(texts, str) else texts
        translations = list(self._values(self._all(translate_job(request), many, request.get("timeout"))))
        return translations[0] if isinstance(texts, str) else translations

    def translate_iter(self, texts: Iterable[str], **request: Unpack[TranslateOptions]) -> Iterator[Translation]:
        """Translates any number of texts in order and bounded memory.

        The arguments are those of `translate`, but `timeout` is the deadline of each request. The client reads at most
        batch_size · concurrency texts ahead of the last translation handed out. While the server's queue is full, the
        client waits up to the deadline. The error of a failed request is raised after the translations of all
        requests before it.
        """
        return self._values(self._lazily(translate_job(request), texts, request.get("timeout")))

    def translate_stream(self, text: str, **request: Unpack[TranslateOptions]) -> TranslationStream:
        """Translates one text and hands out the translation while it is being decoded.

        The arguments are those of `translate`; `timeout` is the deadline of the whole stream. The deltas concatenate
        to the translation, and no delta ends within a character. Beam search hands out what all beams agree on. The
        client retries as `translate` does. A stream that broke off goes on where it was, if its repetition begins with
        the same text; otherwise the client raises Unavailable.
        """
        call, received = stream_call(text, request)
        running = _Running(self)
        deltas = running.values(self._deltas(call, received, request.get("timeout")))
        return TranslationStream(deltas, received, running.stop)

    def translate_document(
        self,
        content: bytes,
        mime_type: str,
        *,
        progress: Callable[[DocumentProgress], None] | None = None,
        **request: Unpack[DocumentOptions],
    ) -> TranslatedDocument:
        """Translates a file. All that is not translated stays as it is, byte for byte.

        A call that breaks off is made again from the beginning.

        Args:
            content: The file. With all else of the request, it has at most `server_info().limits.document_bytes` bytes.
            mime_type: What the file is: text/plain (each line is a text), text/html, text/markdown,
                application/xliff+xml, text/x-gettext-translation, application/x-subrip or text/vtt.
            progress: Is told how far the translation is, at least each second.
            request: What else the request says; DocumentOptions and DecodingOptions describe it.
        """
        call, received = document_call(content, mime_type, progress, request)
        (document,) = self._values(self._deltas(call, received, request.get("timeout")))
        return document  # type: ignore[no-any-return]

    def score(self, pairs: Iterable[tuple[str, str]], **request: Unpack[ScoreOptions]) -> list[Score]:
        """Scores given translations, in order: how probable the model finds each.

        Args:
            pairs: Any number of (source, target); a long list travels in several requests.
            request: What else the request says; ScoreOptions describes it.
        """
        return list(self._values(self._all(score_job(request), pairs, request.get("timeout"))))

    def score_iter(self, pairs: Iterable[tuple[str, str]], **request: Unpack[ScoreOptions]) -> Iterator[Score]:
        """Scores any number of pairs in order and bounded memory, as `translate_iter` does with texts."""
        return self._values(self._lazily(score_job(request), pairs, request.get("timeout")))

    def server_info(self, *, timeout: float | None = None) -> ServerInfo:
        """The server's version, limits and models; `timeout` is a deadline in seconds."""
        (info,) = self._values(self._server_info(timeout))
        return info  # type: ignore[no-any-return]

    def models(self, *, timeout: float | None = None) -> list[ModelInfo]:
        """The models that the server has loaded; `timeout` is a deadline in seconds."""
        return list(self.server_info(timeout=timeout).models)

    def _values(self, steps: Steps) -> Iterator[Any]:
        return _Running(self).values(steps)


class _Running:
    """Performs the steps of one method, and knows the calls that the method has under way."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pool: ThreadPoolExecutor | None = None
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._calls = set[Any]()

    def values(self, steps: Steps) -> Iterator[Any]:
        """The values that the steps hand out. No call stays under way, wherever the caller leaves the iteration."""
        try:
            yield from self._performed(steps)
        finally:
            self.stop()
            if self._pool:
                self._pool.shutdown()

    def stop(self) -> None:
        """Cancels the calls under way, and refuses later ones. May be called again, and by any thread."""
        with self._lock:
            self._stopped.set()
            calls = list(self._calls)
        for call in calls:
            _cancel(call)

    def _performed(self, steps: Steps) -> Iterator[Any]:
        try:
            effect = next(steps)
            while True:
                if isinstance(effect, Hand):
                    yield from effect.values
                    effect = next(steps)
                    continue
                try:
                    outcome = self._perform(effect)
                except Exception as failure:  # noqa: BLE001 (the steps know what to do)
                    effect = steps.throw(failure)
                else:
                    effect = steps.send(outcome)
        except StopIteration:
            return

    def _perform(self, effect: Any) -> Any:
        match effect:
            case Send(call, timeout):
                with self._cancelling_told():
                    sent = self._begun(self._client._method(call).future, call.request, timeout)
                    try:
                        return sent.result()
                    finally:
                        sent.cancel()
                        with self._lock:
                            self._calls.discard(sent)
            case Open(call, timeout):
                return self._begun(self._client._method(call), call.request, timeout)
            case Next(source):
                with self._cancelling_told():
                    return next(source, END)
            case Sleep(seconds):
                return (self._client._sleep or self._stopped.wait)(seconds)
            case Start(steps):
                self._pool = self._pool or ThreadPoolExecutor(self._client._concurrency, "translane")
                return self._pool.submit(copy_context().run, lambda: list(self._performed(steps)))
            case _:
                return effect.task.result()

    def _begun(self, begin: Any, request: object, timeout: float | None) -> Any:
        with self._lock:
            if self._stopped.is_set():
                raise Cancelled("the call was cancelled")
            try:
                call = begin(request, timeout=timeout, metadata=self._client._connection.metadata())
            except ValueError as error:  # gRPC's way to say that the channel is closed
                raise Cancelled("the client was closed") from error
            self._calls.add(call)
        return call

    @contextmanager
    def _cancelling_told(self) -> Iterator[None]:
        """Raises Cancelled where the steps were stopped, or the channel closed."""
        try:
            yield
        except (grpc.FutureCancelledError, grpc.RpcError) as error:
            if self._stopped.is_set() or isinstance(error, grpc.FutureCancelledError):
                raise Cancelled("the call was cancelled") from error
            raise


def _cancel(call: Any) -> None:
    """Cancels a call. A stream that others instrument is a generator, which no thread ends while another one waits."""
    if hasattr(call, "cancel"):
        call.cancel()
    else:
        with suppress(ValueError):
            call.close()
