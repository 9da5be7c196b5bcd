"""The process of one or several replicas. Its argument lists file descriptors: a pipe, and a socket per replica."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from translane_server.replica.setup import ReplicaSetup
    from translane_server.runtime.graph_backend import GraphBackend
    from translane_server.runtime.sessions import Sessions

# The server's process has priority: it needs little CPU time, and earlier requests make larger batches.
_NICENESS = 10


def main() -> int:
    """Decode until the server closes the connections, and return the exit code."""
    for number in (signal.SIGTERM, signal.SIGINT):  # the server drains, and then closes the connections
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # wait(2) needs this; an ignored signal is inherited
    os.nice(_NICENESS)
    # numpy reads this when it is loaded. Without it, OpenBLAS would start a thread for each CPU, but only a process of
    # one thread forks safely.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    from translane_server.replica.fork import serve_forked
    from translane_server.replica.serve import serve

    reports, *numbers = (int(number) for number in sys.argv[-1].split(","))
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(socket.socket(fileno=number)) for number in numbers]
        if len(connections) > 1:
            return serve_forked(connections, _load, _open, reports)
        return serve(connections[0], lambda setup: _open(setup, _load(setup)))


def _load(setup: ReplicaSetup) -> Sessions:
    """Load the model, which several replicas may share.

    Raises:
        StartupError: the model or ONNX Runtime does not load.
    """
    from translane_server.errors import StartupError
    from translane_server.logs import configure_logging

    model = setup.model
    assert model is not None, "the setup of a process has a model"
    configure_logging(model.log_format, model.log_level)
    try:
        from translane_server.runtime.sessions import Sessions
    except ImportError as error:
        raise StartupError(f"onnxruntime does not load: {error}; is it installed once, for this machine?") from None
    return Sessions(model.bundle, device=model.device, threads=model.threads)


def _open(setup: ReplicaSetup, sessions: Sessions) -> GraphBackend:
    """Make and warm up the backend of one replica.

    Raises:
        StartupError: the model does not run, or there is not enough memory for the rows.
    """
    from translane_server.runtime.device_backend import device_backend

    model = setup.model
    assert model is not None, "the setup of a process has a model"
    backend = device_backend(
        sessions,
        rows=setup.rows,
        source_capacity=model.source_capacity,
        target_capacity=model.target_capacity,
        encode_tokens=model.encode_tokens,
    )
    backend.warm_up()
    return backend


if __name__ == "__main__":
    sys.exit(main())
