"""How a command ends that cannot do what it is asked for: with one sentence on standard error."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

_MOST_CHARACTERS = 200  # some packages explain themselves at length


class CommandError(Exception):
    """Ends a command. The message is one sentence for whoever started it, fit for a terminal."""

    exit_code = 1


class PackageError(CommandError):
    """A package is installed, and does not load."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Look for no garbage. What is imported stays: to look for garbage in it takes a tenth of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def packages_load() -> Iterator[None]:
    """Make a PackageError of whatever packages raise as they are imported: without memory, they fail in many ways.

    A package that is missing stays a ModuleNotFoundError.
    """
    try:
        with uncollected():
            yield
    except (ModuleNotFoundError, CommandError):
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}"[:_MOST_CHARACTERS].split())
        raise PackageError(f"a package does not load; is there enough memory? ({reason})") from error


def escaped(text: str, most: int = _MOST_CHARACTERS) -> str:
    """`text` on one line of a terminal: with escapes for what is not printable, without its middle where it is long."""
    if len(text) > most:
        text = f"{text[: most // 2]} … {text[-most // 2 :]}"
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def end_at_once(code: int) -> NoReturn:
    """End the process without waiting for threads, which may be within a library's call that nothing can end.

    An ordinary exit takes the interpreter from under such a thread. If the thread then returns from the call, the
    process may abort. A package that is loaded in part may have such threads of its own, as gRPC has.
    """
    if logging := sys.modules.get("logging"):
        logging.shutdown()
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None if the descriptor was closed before the start
        stream.flush()
    os._exit(code)
