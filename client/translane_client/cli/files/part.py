"""A part of a file: the unit in which a file is translated, written and resumed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from translane.results import Translation

Render = Callable[[Sequence[Translation]], bytes]


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a file. The parts of a file, one after the other, are the whole file.

    A part without texts is written as `render` makes it of nothing.
    """

    raw: bytes
    """The stretch as it is in the file."""
    line: int
    """Number of the line, from 1, on which the first text begins."""
    texts: tuple[str, ...]
    """What is translated."""
    render: Render
    """The bytes to write, from one translation for each text. FileError: a translation does not fit into the file."""


def trimmed(text: str) -> tuple[str, str, str]:
    """White space at the beginning, what is between, and white space at the end."""
    core = text.strip()
    if not core:
        return text, "", ""
    start = len(text) - len(text.lstrip())
    return text[:start], core, text[start + len(core) :]


def is_worth_translating(text: str) -> bool:
    """Whether the text has a letter or a digit."""
    return any(character.isalnum() for character in text)
