"""Makes a document of a source and what is translated of it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from translane_server.text.marks import MarkedText
from translane_server.text.markup.document import MOST_BLOCKS, Document, MarkupError, References, Template, Write
from translane_server.text.markup.inline import Segment, segments
from translane_server.text.markup.items import Item


class _Places:
    """Parts of the source, in order, and what stands in a template for each."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.values: list[int | str] = []

    def add(self, start: int, end: int, value: int | str) -> None:
        self.starts.append(start)
        self.ends.append(end)
        self.values.append(value)


class Builder:
    """Collects the blocks of a source, in the order in which they are there."""

    def __init__(self, source: str, *, free: bool = True) -> None:
        """Start without blocks; `free` says whether a tag means the same whatever tags are beside it."""
        self._source = source
        self._free = free
        self._references = References.absent_from(source)
        self._blocks: list[MarkedText] = []
        self._tags: list[Template] = []
        self._lines = _Places()
        # Attributes and what is written in another way. They come before the lines around them.
        self._attributes = _Places()

    def escape(self, text: str) -> str:
        """Return text of the source that can be taken for no mark of a block."""
        return self._references.escape(text)

    def add_line(self, items: Sequence[Item]) -> dict[int, Segment]:
        """Add what is translated of a line; return its blocks by their numbers."""
        found = {}
        for segment in segments(self._source, items, self._refer, free=self._free):
            number = self._add(segment.marked)
            self._lines.add(segment.start, segment.end, number)
            found[number] = segment
        return found

    def add_attribute(self, start: int, end: int, text: str) -> int:
        """Add an attribute's value; return the number of its block."""
        number = self._add(MarkedText(" ".join(text.split())))
        self._attributes.add(start, end, number)
        return number

    def rewrite(self, start: int, end: int, text: str) -> None:
        """Write `text` for a part of the source that is in a tag."""
        self._attributes.add(start, end, text)

    def document(self, write: Write) -> Document:
        template: list[str | int] = []
        place = 0
        lines = self._lines
        for start, end, number in zip(lines.starts, lines.ends, lines.values, strict=True):
            template += [*self._template(place, start), number]
            place = end
        template += self._template(place, len(self._source))
        return Document(tuple(self._blocks), tuple(template), tuple(self._tags), write, self._references)

    def _add(self, marked: MarkedText) -> int:
        if len(self._blocks) == MOST_BLOCKS:
            raise MarkupError(f"has more than {MOST_BLOCKS} parts to translate")
        self._blocks.append(marked)
        return len(self._blocks) - 1

    def _refer(self, start: int, end: int) -> str:
        """Return what stands for a tag in the marks of a block."""
        self._tags.append(self._template(start, end))
        return self._references.to(len(self._tags) - 1)

    def _template(self, start: int, end: int) -> Template:
        """Return a part of the source, with what stands in it for attributes."""
        places = self._attributes
        template: list[str | int] = []
        for i in range(bisect_left(places.starts, start), bisect_left(places.starts, end)):
            template += [self._source[start : places.starts[i]], places.values[i]]
            start = places.ends[i]
        return (*template, self._source[start:end])
