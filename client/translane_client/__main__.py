"""The `translane` command: the only reader of argv, environment and standard streams."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import BinaryIO, TextIO

_INTERRUPTED = 130  # 128 + SIGINT


def main(
    argv: Sequence[str] | None = None,
    *,
    stdin: BinaryIO | None = None,
    stdout: BinaryIO | None = None,
    stderr: TextIO | None = None,
    environ: Mapping[str, str] | None = None,
) -> int:
    """Runs the command; returns the exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    try:
        from translane_client.cli.command import run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("translane"):
            raise
        message = f"translane: {error.name} is not installed; install translane with its dependencies"
        print(message, file=stderr or sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    try:
        arguments = sys.argv[1:] if argv is None else argv
        return run(arguments, os.environ if environ is None else environ, stdin=stdin, stdout=stdout, stderr=stderr)
    except KeyboardInterrupt:
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
