"""Replicas on threads, with fake backends, behind the sockets of real replicas."""

from __future__ import annotations

from fakes.backend import VOCABULARY
from translane_server.core.errors import StartupError
from translane_server.engine.sequence import TargetVocabulary
from translane_server.runtime.backend import Backend
from translane_server.workers.local import ThreadHost
from translane_server.workers.replica_connection import ReplicaConnection
from translane_server.workers.setup import ReplicaSetup
from translane_server.workers.supervisor import Supervisor


def fake_replica(
    backend: Backend | StartupError, vocabulary: TargetVocabulary = VOCABULARY, *, number: int = 0
) -> Supervisor:
    """Return a replica that decodes on `backend`. A StartupError instead of a backend is raised when it opens."""

    def open_backend() -> Backend:
        if isinstance(backend, StartupError):
            raise backend
        return backend

    setup = ReplicaSetup(number, getattr(backend, "rows", 1), vocabulary)
    return Supervisor(lambda: ReplicaConnection(setup, ThreadHost(open_backend)), replaces=False)
