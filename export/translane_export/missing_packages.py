"""Says what to install where PyTorch, or another package that the exporter needs, is missing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version


def say_missing(program: str, error: ModuleNotFoundError, argv: Sequence[str]) -> int:
    """Print one sentence about the package that `program` lacks; return the exit code.

    The version can be told without that package.

    Raises:
        ModuleNotFoundError: what is missing is a module of Translane's own.
    """
    if error.name is None or error.name.startswith("translane"):
        raise error
    if {"-V", "--version"} & set(argv):
        print(f"{program} {version('translane')}")
        return 0
    package = error.name.partition(".")[0]
    print(f"{program}: {package} is not installed; install translane[export]", file=sys.stderr)
    return 1
