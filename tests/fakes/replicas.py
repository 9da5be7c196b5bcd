"""Replicas on threads, with fake backends, behind the sockets of real replicas."""

from __future__ import annotations

from fakes.backend import VOCABULARY
from translane_server.core.errors import StartupError
from translane_server.engine.sequence import TargetVocabulary
from translane_server.runtime.backend import Backend
from translane_server.workers.connection import WorkerConnection
from translane_server.workers.local import ThreadHost
from translane_server.workers.messages import WorkerSetup
from translane_server.workers.worker import Worker


def fake_replica(
    backend: Backend | StartupError, vocabulary: TargetVocabulary = VOCABULARY, *, number: int = 0
) -> Worker:
    """Return a replica that decodes on `backend`. A StartupError instead of a backend is raised when it opens."""

    def open_backend() -> Backend:
        if isinstance(backend, StartupError):
            raise backend
        return backend

    setup = WorkerSetup(number, getattr(backend, "rows", 1), vocabulary)
    return Worker(lambda: WorkerConnection(setup, ThreadHost(open_backend)), replaces=False)
