"""An asynchronous client with the face of a blocking one, so that a test runs against both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from typing import Any

from translane import AsyncClient, Client
from translane.streams import AsyncTranslationStream


@contextmanager
def connecting(kind: str) -> Iterator[Callable[..., Any]]:
    """Yield what makes clients of a kind, "sync" or "async". They are closed at the end."""
    with asyncio.Runner() as runner, ExitStack() as opened:

        def connect(address: str, **settings: Any) -> Client | Blocking:
            client = Client(address, **settings) if kind == "sync" else Blocking(runner, address, **settings)
            opened.callback(client.close)
            return client

        yield connect


class Blocking:
    """An AsyncClient with the face of a Client."""

    def __init__(self, runner: asyncio.Runner, *arguments: Any, **settings: Any) -> None:
        self._runner = runner
        self.client = AsyncClient(*arguments, **settings)

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **settings: Any) -> Any:
            return self._runner.run(getattr(self.client, name)(*arguments, **settings), context=copy_context())

        return call

    def translate_iter(self, *arguments: Any, **settings: Any) -> Iterator[Any]:
        return self._iterate(self.client.translate_iter(*arguments, **settings))

    def score_iter(self, *arguments: Any, **settings: Any) -> Iterator[Any]:
        return self._iterate(self.client.score_iter(*arguments, **settings))

    def translate_stream(self, *arguments: Any, **settings: Any) -> BlockingStream:
        return BlockingStream(self._runner, self.client.translate_stream(*arguments, **settings))

    def _iterate(self, answers: AsyncIterator[Any]) -> Iterator[Any]:
        iterated: Any = answers  # a generator, which can be closed, though its type does not say so
        try:
            while True:
                try:
                    yield self._runner.run(anext(iterated))
                except StopAsyncIteration:
                    return
        finally:
            self._runner.run(iterated.aclose())


class BlockingStream:
    """An AsyncTranslationStream with the face of a TranslationStream."""

    def __init__(self, runner: asyncio.Runner, stream: AsyncTranslationStream) -> None:
        self._runner = runner
        self._stream = stream

    @property
    def result(self) -> Any:
        return self._stream.result

    def __iter__(self) -> BlockingStream:
        return self

    def __next__(self) -> str:
        try:
            return self._runner.run(self._next())
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> BlockingStream:
        self._runner.run(self._stream.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._stream.__aexit__(*_))

    def close(self) -> None:
        self._runner.run(self._stream.aclose())

    async def _next(self) -> str:
        return await anext(self._stream)
