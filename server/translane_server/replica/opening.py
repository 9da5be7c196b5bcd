"""The model of replicas, and the backend of each."""

from __future__ import annotations

from translane_server.replica.setup import ReplicaSetup
from translane_server.runtime.device_backend import device_backend
from translane_server.runtime.graph_backend import GraphBackend
from translane_server.runtime.sessions import Sessions


def load_model(setup: ReplicaSetup) -> Sessions:
    """The model of a replica, which others may read, too.

    Raises:
        StartupError: it does not load.
    """
    return Sessions(setup.bundle, device=setup.device, threads=setup.threads)


def open_backend(setup: ReplicaSetup, sessions: Sessions) -> GraphBackend:
    """The backend of a replica, warmed up.

    Raises:
        StartupError: the model does not run, or its rows find no memory.
    """
    backend = device_backend(
        sessions,
        rows=setup.rows,
        source_capacity=setup.source_capacity,
        target_capacity=setup.target_capacity,
        encode_tokens=setup.encode_tokens,
    )
    backend.warm_up()
    return backend
