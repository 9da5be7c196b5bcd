"""Makes the backend for a device."""

from __future__ import annotations

from typing import Unpack

from translane_server.runtime.cuda.backend import CudaBackend
from translane_server.runtime.graph_backend import GraphBackend, RowSizes
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import AllThreads, Sessions


def device_backend(
    sessions: Sessions, *, all_threads: AllThreads | None = None, **sizes: Unpack[RowSizes]
) -> GraphBackend:
    """Return a backend on the device of `sessions`, which is not warmed up yet. `all_threads` are for a CPU.

    Raises:
        DeviceError: the device has too little memory for the rows, or cannot run the server's kernels.
    """
    if sessions.cuda:
        return CudaBackend(sessions, **sizes)
    return OrtBackend(sessions, all_threads=all_threads, **sizes)
