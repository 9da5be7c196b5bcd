"""Replicas on threads, over fake backends, behind the sockets of real ones."""

from __future__ import annotations

import threading

from fakes.backend import VOCABULARY
from translane_server.errors import StartupError
from translane_server.dispatch.connection import RemoteReplica
from translane_server.replica.serve import serve
from translane_server.replica.setup import ReplicaSetup


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


def fake_setup(number=0, vocabulary=VOCABULARY, *, rows=1, source_capacity=1, target_capacity=1, encode_tokens=256):
    return ReplicaSetup(
        number=number,
        bundle=None,
        device="cpu",
        threads=1,
        rows=rows,
        source_capacity=source_capacity,
        target_capacity=target_capacity,
        encode_tokens=encode_tokens,
        vocabulary=vocabulary,
    )


def fake_replica(backend, vocabulary=VOCABULARY, *, number=0, encode_tokens=256):
    sizes = {name: getattr(backend, name, 1) for name in ("rows", "source_capacity", "target_capacity")}
    setup = fake_setup(number, vocabulary, encode_tokens=encode_tokens, **sizes)
    return RemoteReplica(setup, ThreadHost(backend))
