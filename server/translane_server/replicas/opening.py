"""The backend of a replica."""

from __future__ import annotations

from translane_server.ort import OrtBackend
from translane_server.replicas.setup import ReplicaSetup
from translane_server.sessions import Sessions


def open_backend(setup: ReplicaSetup) -> OrtBackend:
    """The backend of a replica, warmed up.

    Raises:
        StartupError: the model does not load, or its rows find no memory.
    """
    backend = OrtBackend(
        Sessions(setup.bundle, device=setup.device, threads=setup.threads),
        rows=setup.rows,
        source_capacity=setup.source_capacity,
        target_capacity=setup.target_capacity,
        encode_tokens=setup.encode_tokens,
    )
    backend.warm_up()
    return backend
