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
    """Runs the command and returns its exit code: 0, 1 for a failure, 2 for wrong usage, 130 for Ctrl-C."""
    try:
        from translane_client.command import run

        arguments = sys.argv[1:] if argv is None else argv
        return run(arguments, os.environ if environ is None else environ, stdin=stdin, stdout=stdout, stderr=stderr)
    except KeyboardInterrupt:
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
