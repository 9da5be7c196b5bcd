"""Translations that arrive bit by bit."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Protocol, Self

from translane.results import StreamedTranslation


class Received(Protocol):
    """What has come of a translation."""

    translation: StreamedTranslation | None
    """The whole translation, once the last part has come."""


class _Stream:
    def __init__(self, received: Received) -> None:
        self._received = received

    @property
    def result(self) -> StreamedTranslation:
        """The whole translation, with its score. RuntimeError: the stream has not ended."""
        if self._received.translation is None:
            raise RuntimeError("the stream has not ended: there is no translation yet")
        return self._received.translation


class TranslationStream(_Stream, Iterator[str]):
    """An iterator over the deltas of a translation as they arrive; no delta is empty. It is a context manager.

        with client.translate_stream("我有一只猫") as stream:
            for delta in stream:
                print(delta, end="", flush=True)
        print(stream.result.finish_reason)

    The call begins when the first delta is asked for. Leaving the `with` block, calling `close()` or dropping the
    stream cancels the call and frees the call's place on the server.
    """

    def __init__(self, deltas: Iterator[str], received: Received, cancel: Callable[[], None]) -> None:
        super().__init__(received)
        self._deltas = deltas
        self._cancel = cancel

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        return next(self._deltas)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancels the call if it is under way; a thread that waits for a delta gets Cancelled. May be called again."""
        self._cancel()


class AsyncTranslationStream(_Stream, AsyncIterator[str]):
    """`TranslationStream` for asyncio: an asynchronous iterator and context manager."""

    def __init__(self, deltas: AsyncGenerator[str, None], received: Received, cancel: Callable[[], None]) -> None:
        super().__init__(received)
        self._deltas = deltas
        self._cancel = cancel
        self._waiting = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        self._waiting = True
        try:
            return await anext(self._deltas)
        finally:
            self._waiting = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Cancels the call if it is under way; a task that waits for a delta gets Cancelled. May be called again."""
        self._cancel()
        if not self._waiting:  # else another task waits for a delta, and the cancelled call wakes it
            await self._deltas.aclose()
