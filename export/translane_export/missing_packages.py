"""Says what to install where PyTorch, or another package that the exporter needs, is missing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version

from translane_server.errors import is_about_memory
from translane_server.printable import printable


def say_broken(program: str, error: Exception) -> int:
    """Print one sentence about a package that `program` cannot load, and return the exit code."""
    if is_about_memory(error):
        print(f"{program}: there is not enough memory to start", file=sys.stderr)
    else:
        reason = printable(f"{type(error).__name__}: {error}", 200)
        print(f"{program}: a package does not load; is there enough memory? ({reason})", file=sys.stderr)
    return 1


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
