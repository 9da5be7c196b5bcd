"""How a command ends that cannot do what it is asked for: with one sentence on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class CommandError(Exception):
    """Ends a command. The message is one sentence for whoever started it, fit for a terminal."""

    exit_code = 1


class PackageError(CommandError):
    """A package is installed, and does not load."""


@contextmanager
def packages_load() -> Iterator[None]:
    """Make a PackageError of whatever packages raise as they are imported: without memory, they fail in many ways.

    A package that is missing stays a ModuleNotFoundError.
    """
    try:
        yield
    except (ModuleNotFoundError, CommandError):
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}"[:_MOST_CHARACTERS].split())
        raise PackageError(f"a package does not load; is there enough memory? ({reason})") from error


def escaped(text: str) -> str:
    """`text` on one line of a terminal: with escapes for what is not printable, and cut where it is long."""
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[: _MOST_CHARACTERS // 2]} … {text[-_MOST_CHARACTERS // 2 :]}"
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


_MOST_CHARACTERS = 200  # some packages explain themselves at length
