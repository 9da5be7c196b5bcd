"""`translane-train`: the only reader of argv and environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from translane_export.missing_packages import say_missing

_DISTILL = "distill"  # the first argument


def main(argv: Sequence[str] | None = None) -> int:
    """Train, evaluate or distill; returns the exit code: see `translane_export.train.command`, `distill.command`."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        if list(argv[:1]) == [_DISTILL]:
            from translane_export.distill.command import run as distill

            return distill(argv[1:], os.environ)
        from translane_export.train.command import run
    except ModuleNotFoundError as error:
        return say_missing("translane-train", error, argv)
    return run(argv, os.environ)


if __name__ == "__main__":
    sys.exit(main())
