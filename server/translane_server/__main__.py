"""`translane-server`: the only reader of the command line and the environment."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

_HINT = "install translane[server], or translane[server-cuda] for GPUs"
_OF_REPLICAS = ("numpy", "onnxruntime")  # what the processes need that decode, and this one does not


def main() -> int:
    """Serve until a signal; the exit code tells how it ended."""
    # gRPC reads this when it is loaded: what fails in it reaches the log, or the caller, as an error of our own.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from translane_server.command import run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("translane"):
            raise
        print(f"translane-server: {error.name} is not installed; {_HINT}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    for name in _OF_REPLICAS:
        if find_spec(name) is None:
            print(f"translane-server: {name} is not installed; {_HINT}", file=sys.stderr)
            return 1
    try:
        return run(sys.argv[1:], os.environ)
    except KeyboardInterrupt:  # before the server listens to signals
        return 130


if __name__ == "__main__":
    sys.exit(main())
