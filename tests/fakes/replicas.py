"""Replicas on threads, over fake backends, behind the sockets of real ones."""

from __future__ import annotations

from fakes.backend import VOCABULARY
from translane_server.dispatch.connection import ReplicaConnection
from translane_server.errors import StartupError
from translane_server.local import ThreadHost
from translane_server.replica.setup import ReplicaSetup


def fake_replica(backend, vocabulary=VOCABULARY, *, number=0):
    """A replica that decodes on `backend`; a StartupError in its place is raised when it is to be opened."""

    def open_backend():
        if isinstance(backend, StartupError):
            raise backend
        return backend

    return ReplicaConnection(ReplicaSetup(number, getattr(backend, "rows", 1), vocabulary), ThreadHost(open_backend))
