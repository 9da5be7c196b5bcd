"""Entry point of `translane-batch`. Only this module reads the command line and the environment."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

_EXTRAS = {"onnxruntime": "server", "pyarrow": "batch", "ray": "ray"}  # package → the extra that has it


def main(argv: Sequence[str] | None = None) -> int:
    """Translate a corpus, and return the exit code; see `translane_batch.command`."""
    # gRPC reads this variable when it is imported. Its own log lines would repeat what the command reports itself.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray sends figures to its makers otherwise
    # SIGTERM interrupts a run as Ctrl-C does, so that replicas end and sockets are removed.
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        from translane_batch.command import run

        return run(sys.argv[1:] if argv is None else argv, os.environ)
    except ModuleNotFoundError as error:
        package = (error.name or "translane").partition(".")[0]
        if package.startswith("translane"):
            raise
        extra = _EXTRAS.get(package, "server")
        print(f"translane-batch: {package} is not installed; install translane[{extra}]", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main())
