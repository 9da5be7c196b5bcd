"""The decoder of the server in a program of its own: the methods of the client, without a server or a socket.

Texts are read and put together on threads of the program, and decoded in processes that end with it.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack, overload

from pydantic import ValidationError

from translane.conversions import format_message
from translane.errors import (
    Cancelled,
    DeadlineExceeded,
    TranslaneError,
    checked_document,
    checked_items,
    checked_pair,
    checked_text,
    error_of,
)
from translane.options import DocumentOptions, Format, ScoreOptions, TranslateOptions, checked_request, checked_scoring
from translane.requests import DocumentRequest, ScoringRequest, TranslationRequest
from translane.results import (
    DocumentProgress,
    ModelInfo,
    Score,
    ServerInfo,
    StreamedTranslation,
    TranslatedDocument,
    Translation,
    Translations,
)
from translane.streams import AsyncTranslationStream
from translane_server.api.service import server_info
from translane_server.api.status import CODES
from translane_server.core.errors import (
    InvalidRequestError,
    QueueFullError,
    RequestError,
    RequestTooLongError,
    SettingsError,
)
from translane_server.models.build import loaded_models
from translane_server.models.registry import Registry
from translane_server.settings.loader import first_problem
from translane_server.settings.server_settings import ServerSettings
from translane_server.translation.documents import open_document, translate_document
from translane_server.translation.limits import check_names
from translane_server.translation.translator import Ticket

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")
# Answers items of a request; the number is that of the first one in the caller's list.
_Ask = Callable[[Sequence[_Item], int], Coroutine[Any, Any, list[_Answer]]]

_MOST_ITEMS, _REQUESTS = 256, 4  # of a request, and at one time


class AsyncTranslator:
    """`Translator` for asyncio: the same arguments, methods and errors; an asynchronous context manager.

    A translator belongs to one event loop. The models are loaded when the context is entered.
    """

    def __init__(
        self,
        model: str | Path | Sequence[str | Path] | ServerSettings = (),
        *,
        workers: int | None = None,
        cpus: int | None = None,
        **settings: Any,
    ) -> None:
        self._settings = model if isinstance(model, ServerSettings) else _settings(model, workers, settings)
        # Half of the queue is for one caller.
        fitting = max(1, self._settings.max_queue_size // 2 // _REQUESTS)
        self._most = min(_MOST_ITEMS, self._settings.max_request_texts, fitting)
        self._running = 0  # requests that are neither refused nor answered
        self._cpus = cpus
        self._opened = AsyncExitStack()
        self._models: Registry | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def __aenter__(self) -> Self:
        """Load the models. StartupError: a model is wrong, or cannot be loaded."""
        self._models = await self._opened.enter_async_context(loaded_models(self._settings, cpus=self._cpus))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancel the calls under way, and end the processes. May be called again."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._opened.aclose()

    @overload
    async def translate(self, texts: str, **request: Unpack[TranslateOptions]) -> Translation: ...  # type: ignore[overload-overlap]  # a str is an iterable of str as well
    @overload
    async def translate(self, texts: Iterable[str], **request: Unpack[TranslateOptions]) -> list[Translation]: ...
    async def translate(
        self, texts: str | Iterable[str], **request: Unpack[TranslateOptions]
    ) -> Translation | list[Translation]:
        """Translate one text, or a list of texts in order; see `Translator.translate`."""
        ask, timeout = self._translating(request)
        if isinstance(texts, str):
            return (await self._within(timeout, ask, [texts], 0))[0]
        return await self._all(texts, ask, timeout)

    def translate_iter(
        self, texts: Iterable[str] | AsyncIterable[str], **request: Unpack[TranslateOptions]
    ) -> AsyncGenerator[Translation]:
        """Translate any number of texts in order and bounded memory; see `Translator.translate_iter`."""
        checked_items(texts)
        ask, timeout = self._translating(request)
        return self._windows(texts, partial(self._within, timeout, ask))

    def translate_stream(self, text: str, **request: Unpack[TranslateOptions]) -> AsyncTranslationStream:
        """Hand out the translation of one text while it is being decoded; see `Translator.translate_stream`."""
        stream = self.stream(text, request)
        return AsyncTranslationStream(stream.deltas(), stream, stream.stop)

    def stream(self, text: str, request: TranslateOptions) -> Stream:
        """What translates one text bit by bit."""
        return Stream(self, text, request)

    async def translate_document(
        self,
        content: bytes,
        mime_type: str,
        *,
        progress: Callable[[DocumentProgress], None] | None = None,
        **request: Unpack[DocumentOptions],
    ) -> TranslatedDocument:
        """Translate a file; see `Translator.translate_document`."""
        given = dict(request)
        content, mime_type, anew = checked_document(content, mime_type, given.pop("replace_translations", False))
        fields, ticket, timeout = _parted(given)
        ticket = replace(ticket, most_sentences=2 * self._most)
        asked = DocumentRequest(content, mime_type, **fields, replace_translations=anew)

        async def translated(models: Registry) -> TranslatedDocument:
            opened = await open_document(asked, models, "")
            translator = models.translator(opened.request)
            async with aclosing(translate_document(opened, translator, models, ticket)) as events:
                async for event in events:
                    if isinstance(event, TranslatedDocument):
                        return event
                    if progress:
                        progress(event)
            raise AssertionError("a document has an end")

        return await self._within(timeout, self._patiently, translated, asked)

    async def score(self, pairs: Iterable[tuple[str, str]], **request: Unpack[ScoreOptions]) -> list[Score]:
        """Score given translations, in order; see `Translator.score`."""
        ask, timeout = self._scoring(request)
        return await self._all(pairs, ask, timeout)

    def score_iter(
        self, pairs: Iterable[tuple[str, str]] | AsyncIterable[tuple[str, str]], **request: Unpack[ScoreOptions]
    ) -> AsyncGenerator[Score]:
        """Score any number of pairs in order and bounded memory."""
        checked_items(pairs)
        ask, timeout = self._scoring(request)
        return self._windows(pairs, partial(self._within, timeout, ask))

    async def server_info(self) -> ServerInfo:
        """The version, the limits and the models."""
        settings = self._settings
        return server_info(self._registry.infos(), settings.max_request_texts, settings.max_message_bytes)

    async def models(self) -> list[ModelInfo]:
        """The models that are loaded."""
        return list((await self.server_info()).models)

    @property
    def _registry(self) -> Registry:
        if self._closed:
            raise RuntimeError("the translator is closed")
        if self._models is None:
            raise RuntimeError("the translator has no models yet: enter its context first")
        return self._models

    def _translating(self, request: TranslateOptions) -> tuple[_Ask[str, Translation], float | None]:
        without_texts, ticket, timeout = _read((), request)

        async def ask(texts: Sequence[str], offset: int) -> list[Translation]:
            texts = [checked_text(text, f"texts[{number}]") for number, text in enumerate(texts, offset)]
            asked = replace(without_texts, texts=texts)

            async def translated(models: Registry) -> Translations | None:
                try:
                    return await models.translator(asked).translate(asked, ticket)
                except RequestTooLongError:
                    if len(texts) > 1:
                        return None
                    raise

            answer = await self._patiently(translated, asked, offset)
            if answer is None:
                middle = len(texts) // 2
                return [*await ask(texts[:middle], offset), *await ask(texts[middle:], offset + middle)]
            timing, versions = answer.timing, dict(answer.versions)
            return [
                replace(each, models=each.models or answer.models, timing=timing, versions=versions)
                for each in answer.translations
            ]

        return ask, timeout

    def _scoring(self, request: ScoreOptions) -> tuple[_Ask[tuple[str, str], Score], float | None]:
        without_pairs = ScoringRequest((), **checked_scoring(request))
        timeout = _checked_timeout(request.get("timeout"))

        async def ask(pairs: Sequence[tuple[str, str]], offset: int) -> list[Score]:
            pairs = [checked_pair(pair, f"inputs[{number}]") for number, pair in enumerate(pairs, offset)]
            asked = replace(without_pairs, inputs=pairs)
            languages = asked.model, asked.source_language, asked.target_language
            answer = await self._patiently(lambda models: models.choice.model(*languages).score(asked), asked, offset)
            timing, versions = answer.timing, dict(answer.versions)
            return [replace(each, model=answer.model, timing=timing, versions=versions) for each in answer.scores]

        return ask, timeout

    async def _patiently(
        self,
        call: Callable[[Registry], Awaitable[_Answer]],
        asked: TranslationRequest | DocumentRequest | ScoringRequest,
        offset: int = 0,
    ) -> _Answer:
        """Make a call, again while others fill the queue."""
        while True:
            self._running += 1
            try:
                check_names(asked)
                return await call(self._registry)
            except QueueFullError as error:
                if self._running == 1:
                    raise _error(error, offset) from None
                pause = error.retry_after
            except RequestError as error:
                raise _error(error, offset) from None
            finally:
                self._running -= 1
            await asyncio.sleep(pause)

    async def _within(
        self,
        timeout: float | None,  # noqa: ASYNC109
        answer: Callable[..., Coroutine[Any, Any, _Answer]],
        *given: Any,
    ) -> _Answer:
        """Answer within `timeout` seconds, in a task that `close` cancels."""
        task = asyncio.create_task(answer(*given))  # a coroutine made before would be left if this is never run
        self._tasks.add(task)
        try:
            async with asyncio.timeout(timeout):
                return await task
        except TimeoutError:
            raise DeadlineExceeded("no answer before the deadline") from None
        except asyncio.CancelledError:
            if self._closed and task.cancelled():
                raise Cancelled("the translator was closed") from None
            raise
        finally:
            task.cancel()
            self._tasks.discard(task)

    async def _all(
        self,
        items: Iterable[_Item],
        ask: _Ask[_Item, _Answer],
        timeout: float | None,  # noqa: ASYNC109
    ) -> list[_Answer]:
        async def answers() -> list[_Answer]:
            async with aclosing(self._windows(list(items), ask)) as found:
                return [each async for each in found]

        return await self._within(timeout, answers)

    async def _windows(
        self, items: Iterable[_Item] | AsyncIterable[_Item], ask: _Ask[_Item, _Answer]
    ) -> AsyncGenerator[_Answer]:
        """Keep some requests under way; yield the answers of the oldest one first.

        An error of the caller's iterator comes after the answers to the items before it.
        """
        failure: Exception | None = None
        window: deque[asyncio.Task[list[_Answer]]] = deque()
        try:
            async for batch, offset in _batches(items, self._most):
                if isinstance(batch, Exception):
                    failure = batch
                    break
                task = asyncio.create_task(ask(batch, offset))
                # An iterator that nobody goes on with says nothing of an error.
                task.add_done_callback(lambda task: task.cancelled() or task.exception())
                window.append(task)
                if len(window) == _REQUESTS:
                    for answer in await window[0]:
                        yield answer
                    window.popleft()
            for task in window:
                for answer in await task:
                    yield answer
            if failure:
                raise failure
        finally:
            for task in window:
                task.cancel()
            await asyncio.gather(*window, return_exceptions=True)


class Stream:
    """A translation that comes bit by bit. Implements `translane.streams.Received`."""

    def __init__(self, translator: AsyncTranslator, text: str, request: TranslateOptions) -> None:
        self._asked, self._ticket, self._timeout = _read([checked_text(text, "text")], request, streamed=True)
        self._translator = translator
        self._deltas: asyncio.Queue[str | None] = asyncio.Queue()
        self._translating: asyncio.Task[None] | None = None
        self._is_stopped = False
        self.translation: StreamedTranslation | None = None

    def stop(self) -> None:
        """End it, also while another task waits for a delta. Its rows are free at the next step."""
        self._is_stopped = True
        if self._translating:
            self._translating.cancel()

    async def deltas(self) -> AsyncGenerator[str, None]:
        """The deltas that are not empty."""
        if self._is_stopped:
            raise Cancelled("the call was cancelled")
        translator = self._translator
        answering = translator._within(self._timeout, translator._patiently, self._translate, self._asked)
        self._translating = asyncio.create_task(answering)
        self._translating.add_done_callback(lambda _task: self._deltas.put_nowait(None))
        try:
            while (delta := await self._deltas.get()) is not None:
                yield delta
            if self._is_stopped:
                raise Cancelled("the call was cancelled")
            await self._translating
        finally:
            self._translating.cancel()
            await asyncio.gather(self._translating, return_exceptions=True)

    async def _translate(self, models: Registry) -> None:
        async with aclosing(models.translator(self._asked).stream(self._asked, self._ticket)) as news:
            async for delta in news:
                self.translation = delta.translation
                if delta.text:
                    self._deltas.put_nowait(delta.text)


def _settings(model: str | Path | Sequence[str | Path], workers: int | None, given: dict[str, Any]) -> ServerSettings:
    places: Any = [model] if isinstance(model, str | Path) else list(model)  # the settings read them
    if "replicas" in given:
        raise SettingsError("replicas: a Translator has workers= in its place")
    try:
        return ServerSettings(model=places, replicas=workers, **given)
    except ValidationError as error:
        raise SettingsError(first_problem(error).replace("replicas: ", "workers: ", 1)) from None


def _parted(request: Mapping[str, Any]) -> tuple[dict[str, Any], Ticket, float | None]:
    """The languages and the options of a request, its priority and its timeout. TypeError, ValueError: as `Client`."""
    timeout = _checked_timeout(request.get("timeout"))
    fields, options = checked_request(request)
    ticket = Ticket(priority=fields.pop("priority", 0))
    return {**fields, "options": options}, ticket, timeout


def _read(
    texts: Sequence[str], request: Mapping[str, Any], *, streamed: bool = False
) -> tuple[TranslationRequest, Ticket, float | None]:
    """The request, its priority and its timeout. Raises TypeError and ValueError as `Client` does."""
    given = dict(request)
    format_ = given.pop("format", Format.TEXT)
    format_message(format_)  # refuses one that there is not
    fields, ticket, timeout = _parted(given)
    return TranslationRequest(texts, **fields, format=Format(format_), streamed=streamed), ticket, timeout


def _checked_timeout(timeout: float | None) -> float | None:
    if timeout is not None and not timeout > 0:
        raise ValueError(f"timeout must be a positive number of seconds, not {timeout}")
    return None if timeout is None or math.isinf(timeout) else timeout


def _error(error: RequestError, offset: int = 0) -> TranslaneError:
    violations = error.violations if isinstance(error, InvalidRequestError) else ()
    return error_of(
        CODES[type(error)],
        str(error),
        reason=error.reason,
        violations=[(each.field, each.description) for each in violations],
        retry_after=getattr(error, "retry_after", None),
        offset=offset,
    )


async def _batches(
    items: Iterable[_Item] | AsyncIterable[_Item], size: int
) -> AsyncIterator[tuple[Sequence[_Item] | Exception, int]]:
    """Batches of items, each with the number of its first item; at the end the error of an iterator that breaks off.

    Items are read only as far as batches are taken.
    """
    batch: list[_Item] = []
    offset = 0
    failure: Exception | None = None
    source = items if isinstance(items, AsyncIterable) else _each(items)
    try:
        async for item in source:
            batch.append(item)
            if len(batch) == size:
                yield batch, offset
                offset, batch = offset + size, []
    except Exception as error:  # noqa: BLE001 (it is the caller's)
        failure = error
    if batch:
        yield batch, offset
    if failure:
        yield failure, offset


async def _each(items: Iterable[_Item]) -> AsyncIterator[_Item]:
    for item in items:
        yield item
