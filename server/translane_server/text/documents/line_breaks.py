"""Lines that are joined into one text, and a text that is cut into as many lines."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from unicodedata import east_asian_width


@dataclass(frozen=True, slots=True)
class BrokenLines:
    """A text, and the places where it was broken into lines."""

    text: str  # the lines, with a space between them, and nothing between characters of scripts that write no spaces
    # where each break is in the text: the place of the space, or of the character after the break
    breaks: tuple[int, ...]

    @classmethod
    def of(cls, lines: Sequence[str]) -> BrokenLines:
        """Return the text on the lines."""
        parts, last, length, breaks = [lines[0].rstrip()], lines[0].rstrip()[-1:], len(lines[0].rstrip()), []
        for line in map(str.strip, lines[1:]):
            breaks.append(length)
            part = line if last and line and _is_wide(last) and _is_wide(line[0]) else f" {line}"
            parts.append(part)
            last, length = part[-1:], length + len(part)
        return cls("".join(parts), tuple(breaks))

    def within(self, start: int, length: int) -> BrokenLines:
        """Return the part of so many characters that begins at `start`, with the breaks in it."""
        kept = (place - start for place in self.breaks)
        return BrokenLines(self.text[start : start + length], tuple(place for place in kept if 0 < place < length))

    def cut(self, text: str) -> list[str]:
        """Return another text on as many lines, each with about the same share of it; fewer where it is short.

        A line ends at a space, or between two characters of scripts that write no spaces. No line is blank.
        """
        if not self.breaks:
            return [text]
        places = [
            place
            for place in range(1, len(text))
            if (text[place] == " " and text[place + 1 : place + 2].strip())
            or (_is_wide(text[place - 1]) and _is_wide(text[place]) and not text[place].isspace())
        ]
        lines, begun, low = list[str](), 0, 0
        for end_in_source in self.breaks:
            low = bisect_left(places, begun + 1, low)
            if low == len(places):
                break
            wanted = end_in_source * len(text) / len(self.text)
            after = bisect_left(places, wanted, low)
            end = min(places[max(low, after - 1) : after + 1], key=lambda place: abs(place - wanted))
            lines.append(text[begun:end])
            begun = end + (text[end] == " ")
        return [*lines, text[begun:]]


def _is_wide(character: str) -> bool:
    return east_asian_width(character) in "WF"
