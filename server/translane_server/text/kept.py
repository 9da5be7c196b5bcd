"""Parts of a text that are not translated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple


class Kind(Enum):
    """What a kept part is, where that matters."""

    OPENING_TAG = auto()
    CLOSING_TAG = auto()
    EMOJI = auto()
    OTHER = auto()


class Kept(NamedTuple):
    """The part `text[start:end]`, which is in the translation exactly once, as it is."""

    start: int
    end: int
    kind: Kind = Kind.OTHER

    @property
    def ends_sentence(self) -> bool:
        """Whether the part belongs to the sentence that ends right before it."""
        return self.kind in (Kind.CLOSING_TAG, Kind.EMOJI)


def without_overlaps(parts: Iterable[Kept], over: Sequence[Kept] = ()) -> list[Kept]:
    """Return the parts from left to right, without parts that overlap one that starts before them, or a longer one.

    Args:
        parts: parts in any order.
        over: parts that are kept in any case. They are in order, and none overlaps another.
    """
    found = list(over)
    end, number = 0, 0
    for part in sorted(parts, key=lambda part: (part.start, -part.end)):
        while number < len(over) and over[number].end <= part.start:
            number += 1
        if part.start >= end and not (number < len(over) and over[number].start < part.end):
            found.append(part)
            end = part.end
    return sorted(found) if over else found


def cut_at(parts: Iterable[Kept], places: Sequence[int]) -> list[Kept]:
    """Cut each part at the `places` within it. The places are in order."""
    found = []
    number = 0
    for start, end, kind in parts:
        while number < len(places) and places[number] <= start:
            number += 1
        begin = start
        while number < len(places) and places[number] < end:
            found.append(Kept(begin, places[number], kind))
            begin = places[number]
            number += 1
        found.append(Kept(begin, end, kind))
    return found
