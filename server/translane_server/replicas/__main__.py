"""The process of a replica; the server starts it, with the file descriptor of a socket."""

from __future__ import annotations

import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from translane_server.ort import OrtBackend
    from translane_server.replicas.setup import ReplicaSetup

# What takes requests and answers them goes first: it needs little, and what it brings makes bigger batches.
_NICENESS = 10


def main() -> int:
    """Decode until the server closes the connection."""
    for number in (signal.SIGTERM, signal.SIGINT):  # sent to the whole group: the server drains, and then closes
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICENESS)
    # numpy reads this when it is loaded: its matrix products, which nobody asks for, would have a thread for each CPU.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from translane_server.replicas.served import serve

    with socket.socket(fileno=int(sys.argv[-1])) as connection:
        return serve(connection, _open)


def _open(setup: ReplicaSetup) -> OrtBackend:
    from translane_server.errors import StartupError
    from translane_server.logs import configure_logging

    configure_logging(setup.log_format, setup.log_level)
    try:
        from translane_server.replicas.opening import open_backend
    except ImportError as error:
        raise StartupError(f"onnxruntime does not load: {error}; is it installed once, for this machine?") from None
    return open_backend(setup)


if __name__ == "__main__":
    sys.exit(main())
