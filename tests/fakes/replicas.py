"""Replicas on threads, over fake backends, behind the sockets of real ones."""

from __future__ import annotations

import threading

from fakes.backend import VOCABULARY
from translane_server.errors import StartupError
from translane_server.replicas.remote import RemoteReplica
from translane_server.replicas.served import serve
from translane_server.replicas.setup import ReplicaSetup


class ThreadHost:
    """Runs a replica on a thread; an exception in place of the backend is raised when it is to be opened."""

    def __init__(self, backend):
        self.backend = backend
        self.code = None
        self._thread = None

    def launch(self, connection):
        self._thread = threading.Thread(target=self._serve, args=(connection.dup(),), daemon=True)
        self._thread.start()

    def end(self, *, at_once):
        self._thread.join(0.5 if at_once else 10)
        assert not self._thread.is_alive(), "a replica does not end"
        return f"ended with exit code {self.code}"

    def _serve(self, connection):
        with connection:
            self.code = serve(connection, self._open)

    def _open(self, setup):
        if isinstance(self.backend, StartupError):
            raise self.backend
        return self.backend


def fake_replica(backend, vocabulary=VOCABULARY, *, number=0, encode_tokens=256):
    setup = ReplicaSetup(
        number=number,
        bundle=None,
        device="cpu",
        threads=1,
        rows=getattr(backend, "rows", 1),
        source_capacity=getattr(backend, "source_capacity", 1),
        target_capacity=getattr(backend, "target_capacity", 1),
        encode_tokens=encode_tokens,
        vocabulary=vocabulary,
    )
    return RemoteReplica(setup, ThreadHost(backend))
