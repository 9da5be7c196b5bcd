"""Entry point of `translane-server`. Only this module reads the command line and the environment."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

_HINT = "install translane[server], or translane[server-cuda] for GPUs"
_NEEDED_BY_REPLICAS = ("numpy", "onnxruntime")  # imported only in the replicas' processes
_INTERRUPTED = 130  # 128 + SIGINT


def main() -> int:
    """Serve until a signal comes, and return the exit code."""
    # gRPC reads this variable when it is imported. gRPC's own log lines would repeat what Translane reports itself.
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
    except KeyboardInterrupt:  # the server does not handle signals yet
        return _INTERRUPTED


def _not_installed(name: str) -> int:
    print(f"translane-server: {name} is not installed; {_HINT}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
