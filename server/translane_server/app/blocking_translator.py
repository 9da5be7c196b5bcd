"""The blocking translator: an `AsyncTranslator` on an event loop of a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import os
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from translane.errors import Cancelled, checked_items
from translane.options import DocumentOptions, ScoreOptions, TranslateOptions
from translane.results import DocumentProgress, ModelInfo, Score, ServerInfo, TranslatedDocument, Translation
from translane.streams import TranslationStream
from translane_server.workers.launch import process_ahead

if TYPE_CHECKING:
    from translane_server.app.in_process import AsyncTranslator
    from translane_server.settings.server_settings import ServerSettings

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")

_READ_AHEAD = 64  # items that are read from the caller's iterator at a time


class Translator:
    """Translates in this program. Threads may share a translator; it is a context manager.

        with Translator("models/zh-en") as translator:
            print(translator.translate("我有一只猫"))

    The methods, options, results and errors are those of `Client`, so a program moves to a server by one line. The
    models are loaded at once, and end with `close`, with the `with` block, or with the program. A translator does not
    survive a fork: make one in the child.

    Args:
        model: The folder or the URL of a model bundle, or the name of a model (see docs/models.md); or several of them.
            NAME=FOLDER gives a model another name. Or all settings.
        workers: Processes that decode. None: as many as suit the model and the CPUs.
        cpus: CPUs of all models. None: those that this program may use.
        settings: Settings of the server by name, such as `device="cpu"` or `glossaries=folder`. See docs/server.md.

    Raises:
        SettingsError, StartupError: A setting or a model is wrong; the message is a sentence about it.
    """

    def __init__(
        self,
        model: str | Path | Sequence[str | Path] | ServerSettings = (),
        *,
        workers: int | None = None,
        cpus: int | None = None,
        **settings: Any,
    ) -> None:
        with process_ahead():
            from translane_server.app.in_process import AsyncTranslator  # takes as long as the first worker's process

            self._translator = AsyncTranslator(model, workers=workers, cpus=cpus, **settings)
            self._process = os.getpid()
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="translator", daemon=True)
            self._thread.start()
            self._finalizer = weakref.finalize(self, _end, self._translator, self._loop, self._thread)
            # When the program ends, the processes end by themselves, and nothing can be awaited any more.
            self._finalizer.atexit = False
            try:
                self._run(self._translator.__aenter__())
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel the calls under way, and end the processes. May be called again."""
        if os.getpid() == self._process:
            self._finalizer()

    @overload
    def translate(self, texts: str, **request: Unpack[TranslateOptions]) -> Translation: ...  # type: ignore[overload-overlap]  # a str is an iterable of str as well
    @overload
    def translate(self, texts: Iterable[str], **request: Unpack[TranslateOptions]) -> list[Translation]: ...
    def translate(
        self, texts: str | Iterable[str], **request: Unpack[TranslateOptions]
    ) -> Translation | list[Translation]:
        """Translate one text, or a list of texts in order, as `Client.translate` does."""
        if not isinstance(texts, str):
            texts = list(texts)  # on the thread of the caller
        answer: Translation | list[Translation] = self._run(self._translator.translate(texts, **request))
        return answer

    def translate_iter(self, texts: Iterable[str], **request: Unpack[TranslateOptions]) -> Iterator[Translation]:
        """Translate any number of texts in order and bounded memory, as `Client.translate_iter` does.

        A request has up to 256 texts, and at most four are read ahead of the last translation handed out.
        """
        checked_items(texts)
        return self._items(self._translator.translate_iter(_from_thread(texts), **request))

    def translate_stream(self, text: str, **request: Unpack[TranslateOptions]) -> TranslationStream:
        """Hand out the translation of one text while it is being decoded, as `Client.translate_stream` does."""
        stream = self._translator.stream(text, request)
        return TranslationStream(self._items(stream.deltas()), stream, lambda: self._soon(stream.stop))

    def translate_document(
        self,
        content: bytes,
        mime_type: str,
        *,
        progress: Callable[[DocumentProgress], None] | None = None,
        **request: Unpack[DocumentOptions],
    ) -> TranslatedDocument:
        """Translate a file, as `Client.translate_document` does; `progress` is told on another thread."""
        return self._run(self._translator.translate_document(content, mime_type, progress=progress, **request))

    def score(self, pairs: Iterable[tuple[str, str]], **request: Unpack[ScoreOptions]) -> list[Score]:
        """Score given translations, in order, as `Client.score` does."""
        return self._run(self._translator.score(list(pairs), **request))

    def score_iter(self, pairs: Iterable[tuple[str, str]], **request: Unpack[ScoreOptions]) -> Iterator[Score]:
        """Score any number of pairs in order and bounded memory, as `Client.score_iter` does."""
        checked_items(pairs)
        return self._items(self._translator.score_iter(_from_thread(pairs), **request))

    def server_info(self) -> ServerInfo:
        """The version, the limits and the models."""
        return self._run(self._translator.server_info())

    def models(self) -> list[ModelInfo]:
        """The models that are loaded."""
        return self._run(self._translator.models())

    def _run(self, awaited: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Wait for what runs on the event loop. Ctrl-C cancels it."""
        if threading.current_thread() is self._thread:
            awaited.close()
            raise RuntimeError("what is told of a document's progress cannot ask the translator for anything")
        if os.getpid() != self._process or not self._finalizer.alive:
            awaited.close()
            raise RuntimeError(
                "the translator is closed"
                if os.getpid() == self._process
                else "a translator does not survive a fork: make one in the child"
            )
        future = asyncio.run_coroutine_threadsafe(awaited, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise Cancelled("the translator was closed") from None
        finally:
            future.cancel()

    def _soon(self, call: Callable[[], None]) -> None:
        if self._finalizer.alive:
            self._loop.call_soon_threadsafe(call)

    def _items(self, items: AsyncGenerator[_Item]) -> Iterator[_Item]:
        end: Any = object()
        turn = asyncio.Lock()  # an item that is waited for in vain has ended before the items are closed
        try:
            while (item := self._run(_next(items, end, turn))) is not end:
                yield item
        finally:
            # When the program ends, the event loop does not run any more, and nothing needs to be closed.
            if self._finalizer.alive and not sys.is_finalizing():
                self._close(items, turn)

    def _close(self, items: AsyncGenerator[Any], turn: asyncio.Lock) -> None:
        closing = _closed(items, turn)
        if threading.current_thread() is self._thread:  # an iterator is garbage, and found there
            asyncio.run_coroutine_threadsafe(closing, self._loop)
        else:
            self._run(closing)


def _end(translator: AsyncTranslator, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    if threading.current_thread() is thread:  # it is garbage and found there, or closed by what is told of progress
        threading.Thread(target=_end, args=(translator, loop, thread)).start()
        return
    for ending in (translator.close(), _end_others(), loop.shutdown_default_executor()):
        asyncio.run_coroutine_threadsafe(ending, loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def _end_others() -> None:
    """End what still waits, such as for an iterator of the caller's that does not go on."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _from_thread(items: Iterable[_Item]) -> AsyncIterator[_Item]:
    """The items, which are read on another thread than that of the event loop, because they may come slowly.

    An error of the iterator comes after the items before it.
    """
    iterator = iter(items)
    while True:
        batch: list[_Item] = []
        failure: Exception | None = None
        try:
            await _on_a_thread(partial(batch.extend, itertools.islice(iterator, _READ_AHEAD)))
        except Exception as error:  # noqa: BLE001 (it is the caller's)
            failure = error
        for item in batch:
            yield item
        if failure:
            raise failure
        if not batch:
            return


def _on_a_thread(call: Callable[[], None]) -> asyncio.Future[None]:
    """Call it on a thread that nobody waits for: the caller's iterator may never go on."""
    called = concurrent.futures.Future[None]()
    called.set_running_or_notify_cancel()

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 (who waits raises it)
            is_usual = isinstance(error, Exception)  # SystemExit would end the event loop
            called.set_exception(error if is_usual else RuntimeError(f"the iterator has raised {error!r}"))
        else:
            called.set_result(None)

    threading.Thread(target=copy_context().run, args=(run,), daemon=True).start()
    return asyncio.wrap_future(called)


async def _next(items: AsyncGenerator[_Item], end: _Item, turn: asyncio.Lock) -> _Item:
    async with turn:
        return await anext(items, end)


async def _closed(items: AsyncGenerator[Any], turn: asyncio.Lock) -> None:
    async with turn:
        await items.aclose()
