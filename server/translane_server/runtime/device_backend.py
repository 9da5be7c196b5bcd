"""Makes the backend for a device."""

from __future__ import annotations

from translane_server.runtime.cuda.backend import CudaBackend
from translane_server.runtime.graph_backend import GraphBackend
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import AllThreads, Sessions


def device_backend(
    sessions: Sessions,
    *,
    rows: int,
    source_capacity: int,
    target_capacity: int,
    encode_tokens: int = 2048,
    all_threads: AllThreads | None = None,
) -> GraphBackend:
    """Return a backend on the device of `sessions`. The backend is not warmed up yet.

    Args:
        sessions: the graphs.
        rows: how many rows there are.
        source_capacity: maximum source tokens of a row.
        target_capacity: maximum decoder steps of a row.
        encode_tokens: maximum padded source tokens that are encoded ahead.
        all_threads: the graphs on more threads, for a CPU.

    Raises:
        DeviceError: the device has too little memory for the rows, or cannot run the server's kernels.
    """
    if sessions.cuda:
        return CudaBackend(
            sessions,
            rows=rows,
            source_capacity=source_capacity,
            target_capacity=target_capacity,
            encode_tokens=encode_tokens,
        )
    return OrtBackend(
        sessions,
        rows=rows,
        source_capacity=source_capacity,
        target_capacity=target_capacity,
        encode_tokens=encode_tokens,
        all_threads=all_threads,
    )
