"""`translane-train`: the only reader of argv and environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from translane_export.missing_packages import say_missing


def main(argv: Sequence[str] | None = None) -> int:
    """Train or evaluate; returns the exit code: see `translane_export.train.command`."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        from translane_export.train.command import run
    except ModuleNotFoundError as error:
        return say_missing("translane-train", error, argv)
    return run(argv, os.environ)


if __name__ == "__main__":
    sys.exit(main())
