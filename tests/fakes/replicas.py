"""Replicas on threads, with fake backends, behind the sockets of real replicas."""

import socket
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from fakes.backend import VOCABULARY, FakeBackend
from translane_server.engine.sequence import TargetVocabulary
from translane_server.runtime.backend import Backend
from translane_server.workers.connection import WorkerConnection
from translane_server.workers.messages import WorkerSetup
from translane_server.workers.worker import Worker
from translane_server.workers.worker_process import serve


class ThreadHost:
    """Runs a replica on a thread of this process. Implements `connection.Host`.

    Args:
        open_backend: makes the replica's backend. The replica's thread calls it.
    """

    pid = -1  # it has no process of its own

    def __init__(self, open_backend: Callable[[], Backend]) -> None:
        self._open_backend = open_backend
        self._code: int | None = None
        self._thread: threading.Thread | None = None

    def launch(self, connection: socket.socket) -> None:
        self._thread = threading.Thread(target=self._serve, args=(connection.dup(),), name="replica", daemon=True)
        self._thread.start()

    def end(self, *, at_once: bool) -> str:
        if self._thread is None:
            return "was not started"
        self._thread.join()
        return f"ended with exit code {self._code}"

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            self._code = serve(connection, lambda _setup: self._open_backend())


def fake_setup(number: int = 0, rows: int = 1, vocabulary: TargetVocabulary = VOCABULARY) -> WorkerSetup:
    """The setup of a replica whose host has a backend already."""
    model: Any = SimpleNamespace(name="fake")
    return WorkerSetup(number, rows, vocabulary, model)


def fake_replica(backend: Backend, vocabulary: TargetVocabulary = VOCABULARY, *, number: int = 0) -> Worker:
    """Return a replica that decodes on `backend`."""

    def open_backend() -> Backend:
        if isinstance(backend, FakeBackend):
            backend.closed = False  # after a loss it is used again
        return backend

    setup = fake_setup(number, backend.rows, vocabulary)
    return Worker(lambda: WorkerConnection(setup, ThreadHost(open_backend)))
