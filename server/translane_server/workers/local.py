"""Decodes without a server, by the server's dispatcher and a worker on a thread of this process."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from translane_server.engine.sequence import Sentence, SentenceResult, StepStats, TargetVocabulary
from translane_server.runtime.backend import Backend
from translane_server.workers.connection import WorkerConnection
from translane_server.workers.dispatcher import Dispatcher
from translane_server.workers.messages import WorkerSetup
from translane_server.workers.serve import serve
from translane_server.workers.worker import Worker

_Result = TypeVar("_Result")


class ThreadHost:
    """Runs a worker on a thread of this process. Implements `connection.Host`.

    Args:
        open_backend: makes the worker's backend. The worker's thread calls it.
    """

    def __init__(self, open_backend: Callable[[], Backend]) -> None:
        self._open_backend = open_backend
        self._code: int | None = None
        self._thread: threading.Thread | None = None

    @property
    def pid(self) -> int:
        return -1  # it has no process of its own

    def launch(self, connection: socket.socket) -> None:
        self._thread = threading.Thread(target=self._serve, args=(connection.dup(),), name="worker", daemon=True)
        self._thread.start()

    def end(self, *, at_once: bool) -> str:  # noqa: ARG002 a thread cannot be ended
        if self._thread is None:
            return "was not started"
        self._thread.join()
        return f"ended with exit code {self._code}"

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            self._code = serve(connection, lambda _setup: self._open_backend())


class LocalDecoder:
    """Decodes lists of sentences with the server's dispatcher and engine loop.

    A `with` statement starts and stops the decoder.

    Args:
        backend: runs the model; the decoder closes it.
        vocabulary: the target vocabulary.
        observe: called with the measurements.
    """

    def __init__(
        self,
        backend: Backend,
        vocabulary: TargetVocabulary,
        observe: Callable[[StepStats], None] = lambda _measurements: None,
    ) -> None:
        setup, host = WorkerSetup(0, backend.rows, vocabulary), ThreadHost(lambda: backend)
        self._worker = Worker(lambda: WorkerConnection(setup, host), replaces=False)
        self._observe = observe
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread
        self.dispatcher: Dispatcher

    def __enter__(self) -> LocalDecoder:
        # The loop has a thread of its own: an exception of a signal's handler must not end in a callback of the loop.
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="dispatcher", daemon=True)
        self._thread.start()
        try:
            self.run(self._start())
        except BaseException:
            self._end_loop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self.run(self.dispatcher.stop())
        finally:
            self._end_loop()

    def run(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine in the event loop of the dispatcher."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def decode(self, sentences: Sequence[Sentence], priority: int = 0) -> tuple[SentenceResult, ...]:
        """Decode `sentences`; see `Dispatcher.decode`.

        Raises:
            EngineError: decoding fails.
        """
        return self.run(self.dispatcher.decode(sentences, priority))

    async def _start(self) -> None:
        self.dispatcher = Dispatcher([self._worker], waiting_limit=sys.maxsize, observe=self._observe)
        await self.dispatcher.start()

    def _end_loop(self) -> None:
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
