"""`translane-export`: the only reader of argv and environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from translane_export.missing_packages import say_missing


def main(argv: Sequence[str] | None = None) -> int:
    """Export; returns the exit code: see `translane_export.command`."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        from translane_export.command import run
    except ModuleNotFoundError as error:
        return say_missing("translane-export", error, argv)
    return run(argv, os.environ)


if __name__ == "__main__":
    sys.exit(main())
