"""The asyncio client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Self, Unpack, overload

import grpc
import grpc.aio

from translane.errors import Cancelled
from translane.options import DocumentOptions, ScoreOptions, TranslateOptions
from translane.results import DocumentProgress, ModelInfo, Score, ServerInfo, TranslatedDocument, Translation
from translane.streams import AsyncTranslationStream
from translane_client._core import END, BaseClient, Hand, Next, Open, Send, Sleep, Start, Steps
from translane_client._requests import document_call, score_job, stream_call, translate_job


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
        many = [texts] if isinstance(texts, str) else texts
        translations = await self._list(self._all(translate_job(request), many, request.get("timeout")))
        return translations[0] if isinstance(texts, str) else translations

    def translate_iter(
        self, texts: Iterable[str] | AsyncIterable[str], **request: Unpack[TranslateOptions]
    ) -> AsyncIterator[Translation]:
        """Translates any number of texts in order and bounded memory, as `Client.translate_iter` does."""
        return _Running(self).values(self._lazily(translate_job(request), texts, request.get("timeout")))

    def translate_stream(self, text: str, **request: Unpack[TranslateOptions]) -> AsyncTranslationStream:
        """Hands out the translation of one text while it is being decoded, as `Client.translate_stream` does."""
        call, received = stream_call(text, request)
        running = _Running(self)
        deltas = running.values(self._deltas(call, received, request.get("timeout")))
        return AsyncTranslationStream(deltas, received, running.stop)

    async def translate_document(
        self,
        content: bytes,
        mime_type: str,
        *,
        progress: Callable[[DocumentProgress], None] | None = None,
        **request: Unpack[DocumentOptions],
    ) -> TranslatedDocument:
        """Translates a file, as `Client.translate_document` does."""
        call, received = document_call(content, mime_type, progress, request)
        (document,) = await self._list(self._deltas(call, received, request.get("timeout")))
        return document  # type: ignore[no-any-return]

    async def score(self, pairs: Iterable[tuple[str, str]], **request: Unpack[ScoreOptions]) -> list[Score]:
        """Scores given translations, in order, as `Client.score` does."""
        return await self._list(self._all(score_job(request), pairs, request.get("timeout")))

    def score_iter(
        self, pairs: Iterable[tuple[str, str]] | AsyncIterable[tuple[str, str]], **request: Unpack[ScoreOptions]
    ) -> AsyncIterator[Score]:
        """Scores any number of pairs in order and bounded memory, as `Client.score_iter` does."""
        return _Running(self).values(self._lazily(score_job(request), pairs, request.get("timeout")))

    async def server_info(self, *, timeout: float | None = None) -> ServerInfo:  # noqa: ASYNC109 - travels to the server
        """The server's version, limits and models; `timeout` is a deadline in seconds."""
        (info,) = await self._list(self._server_info(timeout))
        return info  # type: ignore[no-any-return]

    async def models(self, *, timeout: float | None = None) -> list[ModelInfo]:  # noqa: ASYNC109 - travels to the server
        """The models that the server has loaded; `timeout` is a deadline in seconds."""
        return list((await self.server_info(timeout=timeout)).models)

    async def _list(self, steps: Steps) -> list[Any]:
        return await _Running(self).list(steps)


class _Running:
    """Performs the steps of one method, and knows what the method has under way."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._tasks = set[asyncio.Task[Any]]()
        self._stream: Any = None
        self._stopped = False

    async def list(self, steps: Steps) -> list[Any]:
        """All values that the steps hand out."""
        return [value async for value in self.values(steps)]

    async def values(self, steps: Steps) -> AsyncGenerator[Any, None]:
        """The values that the steps hand out. No call stays under way, wherever the caller leaves the iteration."""
        try:
            effect = next(steps)
            while True:
                if isinstance(effect, Hand):
                    for value in effect.values:
                        yield value
                    effect = next(steps)
                    continue
                try:
                    outcome = await self._perform(effect)
                except Exception as failure:  # noqa: BLE001 (the steps know what to do)
                    effect = steps.throw(failure)
                else:
                    effect = steps.send(outcome)
        except StopIteration:
            return
        finally:
            self._cancel()
            if self._tasks:
                await asyncio.gather(*self._tasks, return_exceptions=True)

    def stop(self) -> None:
        """Cancels the call under way, and refuses later ones. May be called again, and by any task."""
        self._stopped = True
        self._cancel()

    def _cancel(self) -> None:
        for running in (self._stream, *self._tasks):
            if running is not None:
                running.cancel()

    async def _perform(self, effect: Any) -> Any:
        with self._cancelling_told():
            match effect:
                case Send(call, timeout):
                    return await self._begun(call, timeout)
                case Open(call, timeout):
                    self._stream = self._begun(call, timeout)
                    return aiter(self._stream)
                case Next(source) if isinstance(source, AsyncIterator):
                    return await anext(source, END)
                case Next(source):
                    return next(source, END)
                case Sleep(seconds):
                    return await (self._client._sleep or asyncio.sleep)(seconds)
                case Start(steps):
                    task = asyncio.create_task(_Running(self._client).list(steps))
                    self._tasks.add(task)
                    return task
                case _:
                    outcome = await effect.task
                    self._tasks.discard(effect.task)
                    return outcome

    def _begun(self, call: Any, timeout: float | None) -> Any:
        if self._stopped:
            raise Cancelled("the call was cancelled")
        method = self._client._method(call)
        return method(call.request, timeout=timeout, metadata=self._client._connection.metadata())

    @contextmanager
    def _cancelling_told(self) -> Iterator[None]:
        """Raises Cancelled where gRPC says in its own way that the client was closed, or the stream stopped."""
        try:
            yield
        except grpc.aio.UsageError as error:  # the channel is closed
            raise Cancelled("the client was closed") from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and not task.cancelling():  # the call was cancelled, not the task
                if self._client._closed:
                    raise Cancelled("the client was closed") from error
                if self._stopped:
                    raise Cancelled("the call was cancelled") from error
            raise
