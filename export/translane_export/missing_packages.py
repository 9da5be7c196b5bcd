"""Says what to install where PyTorch, or another package that the exporter needs, is missing."""

from __future__ import annotations

import sys


def say_missing(program: str, error: ModuleNotFoundError) -> int:
    """Print one sentence about the package that `program` lacks; return the exit code 1.

    Raises:
        ModuleNotFoundError: what is missing is a module of Translane's own.
    """
    if error.name is None or error.name.startswith("translane"):
        raise error
    package = error.name.partition(".")[0]
    print(f"{program}: {package} is not installed; install translane[export]", file=sys.stderr)
    return 1
