"""Text for terminals and logs."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable

MOST_CHARACTERS = 1000
_KEPT_AT_THE_END = 200
_GAP = " … "
_SHOWN_NAMES, _SHOWN_CHARACTERS = 12, 60


def printable(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return `text` on one line. Where it has more than `most` characters, it loses its middle.

    Applied again, the function changes nothing.
    """
    if len(text) > most:
        end = min(_KEPT_AT_THE_END, most // 2)
        text = f"{text[: most - end - len(_GAP)]}{_GAP}{text[len(text) - end :]}"
    return on_one_line(text)


def on_one_line(text: str) -> str:
    r"""Return `text` with escapes for all that is not printable, such as "\x1b" and "\n"."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shown(value: object, most: int = 60) -> str:
    """Return a short `repr` of a value from a file, however large the value is."""
    if isinstance(value, int) and abs(value) >= 10**most:  # Python refuses to write numbers of many digits
        return f"a number of more than {most} digits"
    if isinstance(value, list | dict) and len(value) > most:
        return f"a {type(value).__name__} of {len(value):,} items"
    return printable(repr(value), most)


def listed(names: Iterable[str]) -> str:
    """Return the first of `names`, separated by commas, and how many more there are: 12 and 60 characters at most."""
    every = list(names)
    first = [printable(name, 100) for name in every[:_SHOWN_NAMES]]
    some = first[:1]
    for name in first[1:]:
        if len(", ".join([*some, name])) > _SHOWN_CHARACTERS:
            break
        some.append(name)
    more = len(every) - len(some)
    return ", ".join(some) + (f" and {more} more" if more else "")


def ending(code: int) -> str:
    """How a process ended, by its exit code: "ended with exit code 1", or "was ended by SIGKILL"."""
    if code >= 0:
        return f"ended with exit code {code}"
    names = {each.value: each.name for each in signal.Signals}  # a real-time signal has none
    return f"was ended by {names.get(-code, f'signal {-code}')}"


def write_output(text: str) -> None:
    """Write `text` and a line's end. A reader who has gone is no error.

    Raises:
        OSError: it cannot be written, as on a full disk.
    """
    try:
        print(text, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it again as it ends
        if not isinstance(error, BrokenPipeError):
            raise
