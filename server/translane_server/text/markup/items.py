"""What stands in a line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

# White space of HTML, which a browser shows as one space.
SPACE = " \t\r\n\f"

# Returns what stands for a part of the source, from `start` to `end`, in a block's marks.
Refer = Callable[[int, int], str]


class Kind(Enum):
    """What an item is."""

    TEXT = auto()
    OPEN = auto()
    CLOSE = auto()
    SINGLE = auto()
    BREAK = auto()  # where a line is cut


@dataclass(frozen=True, slots=True)
class Item:
    """A part of a line.

    Attributes:
        kind: what it is.
        start: where it starts in the source [characters].
        end: where it ends.
        text: of a text: what it says, without entities.
        name: of a tag: what it shares with its partner.
        is_word: of a single thing: whether readers read it as a part of the sentence, as they do code.
    """

    kind: Kind
    start: int
    end: int
    text: str = ""
    name: str = ""
    is_word: bool = False
