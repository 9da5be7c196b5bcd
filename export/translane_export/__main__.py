"""`translane-export`: the only reader of argv and environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from translane_export.missing_packages import say_broken, say_missing
from translane_export.supervision import supervise

_PROGRAM = "translane-export"


def main(argv: Sequence[str] | None = None) -> int:
    """Export; returns the exit code: see `translane_export.command`. Without `argv`, a process of its own exports."""
    if argv is None:
        argv = sys.argv[1:]
        code = supervise(_PROGRAM)
        if code is not None:
            return code
    try:
        from translane_export.command import run
    except ModuleNotFoundError as error:
        return say_missing(_PROGRAM, error, argv)
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 (where memory is limited, packages fail in many ways)
        return say_broken(_PROGRAM, error)
    return run(argv, os.environ)


if __name__ == "__main__":
    sys.exit(main())
