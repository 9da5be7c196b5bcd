"""Lines that are joined into one text, and a text that is cut into as many lines."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from unicodedata import east_asian_width


@dataclass(frozen=True, slots=True)
class BrokenLines:
    """A text, and the places where it was broken into lines."""

    text: str
    """The lines, with a space between them, and nothing between characters of scripts that write no spaces."""
    breaks: tuple[int, ...]
    """Index of each break in the text: that of the space, or of the character after the break."""

    @classmethod
    def of(cls, lines: Sequence[str]) -> BrokenLines:
        """The text on the lines."""
        text = lines[0].rstrip()
        breaks = []
        for line in map(str.strip, lines[1:]):
            breaks.append(len(text))
            text += line if text and line and _is_wide(text[-1]) and _is_wide(line[0]) else f" {line}"
        return cls(text, tuple(breaks))

    def within(self, start: int, length: int) -> BrokenLines:
        """The part of so many characters that begins at `start`, with the breaks in it."""
        kept = (index - start for index in self.breaks)
        return BrokenLines(self.text[start : start + length], tuple(index for index in kept if 0 < index < length))

    def cut(self, text: str) -> list[str]:
        """Another text on as many lines, each with about the same share of the text as here; fewer where it is short.

        A line ends at a space, or between two characters of scripts that write no spaces. No line is blank.
        """
        places = [
            index
            for index in range(1, len(text))
            if (text[index] == " " and text[index + 1 : index + 2].strip())
            or (_is_wide(text[index - 1]) and _is_wide(text[index]) and not text[index].isspace())
        ]
        lines, begun, low = list[str](), 0, 0
        for index in self.breaks:
            low = bisect_left(places, begun + 1, low)
            if low == len(places):
                break
            wanted = index * len(text) / len(self.text)
            after = bisect_left(places, wanted, low)
            end = min(places[max(low, after - 1) : after + 1], key=lambda place: abs(place - wanted))
            lines.append(text[begun:end])
            begun = end + (text[end] == " ")
        return [*lines, text[begun:]]


def _is_wide(character: str) -> bool:
    return east_asian_width(character) in "WF"
