"""`translane-server`: the only reader of the command line and the environment."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

_HINT = "install translane[server], or translane[server-cuda] for GPUs"
_NEEDED_BY_REPLICAS = ("numpy", "onnxruntime")  # this process does not import them, but the replicas' processes do
_INTERRUPTED = 130  # 128 + SIGINT


def main() -> int:
    """Serve until a signal; returns the exit code, which tells how the server ended."""
    # gRPC reads this when it is imported. Its failures reach the log, or the caller, as Translane's own errors.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from translane_server.command import run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("translane"):
            raise
        return _not_installed(error.name)
    except KeyboardInterrupt:
        return _INTERRUPTED
    for name in _NEEDED_BY_REPLICAS:
        if find_spec(name) is None:
            return _not_installed(name)
    try:
        return run(sys.argv[1:], os.environ)
    except KeyboardInterrupt:  # before the server listens to signals
        return _INTERRUPTED


def _not_installed(name: str) -> int:
    print(f"translane-server: {name} is not installed; {_HINT}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
