"""Replicas on threads, with fake backends, behind the sockets of real replicas."""

from __future__ import annotations

from fakes.backend import VOCABULARY
from translane_server.backend import Backend
from translane_server.dispatch.replica_connection import ReplicaConnection
from translane_server.errors import StartupError
from translane_server.local import ThreadHost
from translane_server.replica.setup import ReplicaSetup
from translane_server.vocabulary import TargetVocabulary


def fake_replica(
    backend: Backend | StartupError, vocabulary: TargetVocabulary = VOCABULARY, *, number: int = 0
) -> ReplicaConnection:
    """Return a replica that decodes on `backend`. A StartupError instead of a backend is raised when it opens."""

    def open_backend() -> Backend:
        if isinstance(backend, StartupError):
            raise backend
        return backend

    return ReplicaConnection(ReplicaSetup(number, getattr(backend, "rows", 1), vocabulary), ThreadHost(open_backend))
