"""The process of one or several replicas; the server starts it, with file descriptors: of a pipe, and of sockets."""

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

# What takes requests and answers them goes first: it needs little, and what it brings makes bigger batches.
_NICENESS = 10


def main() -> int:
    """Decode until the server closes the connections."""
    for number in (signal.SIGTERM, signal.SIGINT):  # sent to the whole group: the server drains, and then closes
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # whoever has started the server may have it ignored: see wait(2)
    os.nice(_NICENESS)
    # numpy reads this when it is loaded. Its matrix products, which nobody asks for, would have a thread for each CPU;
    # and only a process of one thread forks safely.
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
    """The model, which several replicas may read.

    Raises:
        StartupError: the model, or ONNX Runtime, does not load.
    """
    from translane_server.errors import StartupError
    from translane_server.logs import configure_logging

    model = setup.model
    assert model is not None, "a process is told its model"
    configure_logging(model.log_format, model.log_level)
    try:
        from translane_server.runtime.sessions import Sessions
    except ImportError as error:
        raise StartupError(f"onnxruntime does not load: {error}; is it installed once, for this machine?") from None
    return Sessions(model.bundle, device=model.device, threads=model.threads)


def _open(setup: ReplicaSetup, sessions: Sessions) -> GraphBackend:
    """A replica's own backend, warmed up.

    Raises:
        StartupError: the model does not run, or its rows find no memory.
    """
    from translane_server.runtime.device_backend import device_backend

    model = setup.model
    assert model is not None, "a process is told its model"
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
