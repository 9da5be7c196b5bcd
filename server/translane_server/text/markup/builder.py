"""Makes a document of a source and what is translated of it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from ..marks import MarkedText
from .document import MOST_BLOCKS, Document, MarkupError, Template, Write, reference
from .inline import Item, segments


class Builder:
    """Collects the blocks of a source, in the order in which they are there."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._blocks: list[MarkedText] = []
        self._tags: list[Template] = []
        # Places of blocks in the source: starts, ends and numbers. Attributes are found before the lines around them.
        self._attributes: tuple[list[int], list[int], list[int]] = ([], [], [])
        self._lines: tuple[list[int], list[int], list[int]] = ([], [], [])

    def add_line(self, items: Sequence[Item]) -> list[int]:
        """Add what is translated of a line; return the numbers of its blocks."""
        numbers = []
        for segment in segments(self._source, items, self._refer):
            numbers.append(self._add(self._lines, segment.start, segment.end, segment.marked))
        return numbers

    def add_attribute(self, start: int, end: int, text: str) -> int:
        """Add an attribute's value; return the number of its block."""
        return self._add(self._attributes, start, end, MarkedText(" ".join(text.split())))

    def document(self, write: Write) -> Document:
        template: list[str | int] = []
        place = 0
        for start, end, number in zip(*self._lines, strict=True):
            template += self._template(place, start)
            template.append(number)
            place = end
        template += self._template(place, len(self._source))
        return Document(tuple(self._blocks), tuple(template), tuple(self._tags), write)

    def _add(self, places: tuple[list[int], list[int], list[int]], start: int, end: int, marked: MarkedText) -> int:
        number = len(self._blocks)
        if number == MOST_BLOCKS:
            raise MarkupError(f"has more than {MOST_BLOCKS} parts to translate")
        self._blocks.append(marked)
        for values, value in zip(places, (start, end, number), strict=True):
            values.append(value)
        return number

    def _refer(self, start: int, end: int) -> str:
        """Return what stands for a tag in the marks of a block."""
        self._tags.append(self._template(start, end))
        return reference(len(self._tags) - 1)

    def _template(self, start: int, end: int) -> Template:
        """Return a part of the source, with the numbers of the attributes in it."""
        starts, ends, numbers = self._attributes
        template: list[str | int] = []
        for i in range(bisect_left(starts, start), bisect_left(starts, end)):
            template += [self._source[start : starts[i]], numbers[i]]
            start = ends[i]
        return (*template, self._source[start:end])
