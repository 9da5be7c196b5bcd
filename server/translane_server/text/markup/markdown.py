"""Markdown: CommonMark with the tables and the strikethrough of GitHub.

A paragraph, a heading and a table's cell is a block, with emphasis, links, images and code as its marks. White space
within a block becomes one space, line breaks too. A link or an image that is named by its text gets this name beside
its new text. Emphasis that Markdown cannot write beside its new neighbours is written as HTML. All around the blocks
stays as it is.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from translane_server.core.budget import UNLIMITED, Budget
from translane_server.text.markup.document import Document, Item, Kind, MarkupError, Part
from translane_server.text.markup.inline import Builder, fixed
from translane_server.text.markup.markdown_text import (
    Surroundings,
    emphasis_as_html,
    items_of,
    lone_backquotes,
    parser,
    write_alternative,
    write_line,
)

if TYPE_CHECKING:
    from markdown_it.token import Token

# The parser takes some 0.1 ms for each sign that may be markup, and longer for each bracket of a paragraph.
_MOST_SIGNS = 20_000
_MOST_BRACKETS = 5_000
# The parser makes cells of what a row lacks: a few signs are a large table.
_MOST_CELLS = 10_000
_SIGNS = "*_[`<&~!\\|\n\r#"

_LINE_END = re.compile(r"\r\n?|\n")
_BELOW_HEAD = re.compile(r"^[ \t\r>|:-]++$", re.MULTILINE)
_TASK = re.compile(r"\[[ xX]\][ \t]+")


def parse_markdown(text: str, budget: Budget = UNLIMITED, most_signs: int = _MOST_SIGNS) -> Document:
    """Find what is translated of a Markdown document. The budget is checked at each paragraph, heading and cell.

    The text may have `most_signs` signs of markup. A paragraph never has more than the default.

    Raises:
        MarkupError: the text has too many blocks or signs of markup, or a paragraph has too many signs or brackets.
        OverBudgetError, WorkEndedError: see `Budget.check`.
    """
    if sum(map(text.count, _SIGNS)) > most_signs:
        raise MarkupError(f"has more than {most_signs} signs of markup, such as * and line breaks")
    if _cells(text) > _MOST_CELLS:
        raise MarkupError(f"has tables of more than {_MOST_CELLS} cells")
    return _Reader(text, budget).document()


def _cells(text: str) -> int:
    """Return how many cells the tables of a text have, or more: rows up to the next blank line, times columns."""
    cells = columns = 0
    for line in _LINE_END.split(text):
        if not line.strip(" \t>"):
            columns = 0
        elif "-" in line and _BELOW_HEAD.fullmatch(line):
            columns = max(columns, line.count("|"))
        cells += columns
    return cells


@dataclass(frozen=True, slots=True)
class _Line:
    """Where the content of a paragraph, a heading or a cell stands in the source."""

    content: str  # as the parser has it
    starts: Sequence[int]  # places in the content from which on it goes on in the source elsewhere
    places: Sequence[int]  # where in the source

    def place(self, offset: int) -> int:
        """Return the place in the source of a place in the content."""
        i = bisect_right(self.starts, offset) - 1
        return self.places[max(i, 0)] + max(0, offset - self.starts[max(i, 0)])


def _without_task(line: _Line) -> _Line:
    """Return the content without the box of a task, which is no markup to CommonMark."""
    match = _TASK.match(line.content)
    if match is None:
        return line
    size = match.end()
    starts = [max(0, start - size) for start in line.starts]
    return _Line(line.content[size:], starts, [line.places[0] + size, *line.places[1:]])


class _Reader:
    """Reads a text block by block, and makes a document of it."""

    def __init__(self, source: str, budget: Budget) -> None:
        self._source = source
        self._budget = budget
        self._lines: list[tuple[int, int]] = []
        start = 0
        for match in _LINE_END.finditer(source):
            self._lines.append((start, match.start()))
            start = match.end()
        self._lines.append((start, len(source)))
        self._builder = Builder(source, free=False)
        self._references: dict[str, Any] = {}
        self._surroundings: dict[int, Surroundings] = {}
        self._images: set[int] = set()  # blocks that are the texts of images
        self._bar = "&#124;" if any("-" in line for line in _BELOW_HEAD.findall(source)) else "|"

    def document(self) -> Document:
        first = self._after_front_matter()
        env: dict[str, Any] = {}
        tokens = parser().parse(self._source[self._lines[first][0] :] if first < len(self._lines) else "", env)
        self._references = env.get("references", {})
        row: list[Token] | None = None
        row_line = 0
        for i, token in enumerate(tokens):
            if token.type == "tr_open" and token.map:
                row, row_line = [], first + token.map[0]
            elif token.type == "tr_close":
                for line in self._cells(row or [], row_line):
                    self._add(line, Surroundings(in_cell=True))
                row = None
            elif token.type == "inline" and row is not None:
                row.append(token)
            elif token.type == "inline" and token.map:
                opening = tokens[i - 1]
                is_heading = opening.type == "heading_open"
                hashes = opening.markup if is_heading and opening.markup.startswith("#") else ""
                found = self._line(token, first + token.map[0], hashes)
                if found is not None:
                    around = Surroundings(not hashes, in_heading=is_heading, bar=self._bar)
                    self._add(found if is_heading else _without_task(found), around)
        write = partial(_write, self._surroundings, frozenset(self._images), self._references)
        return self._builder.document(write)

    def _after_front_matter(self) -> int:
        """Return the number of the first line after YAML or TOML at the start of a file."""
        fence = self._text(0).rstrip()
        if fence not in ("---", "+++"):
            return 0
        ends = ("---", "...") if fence == "---" else ("+++",)
        for number in range(1, len(self._lines)):
            if self._text(number).rstrip() in ends:
                return number + 1
        return 0

    def _text(self, number: int) -> str:
        start, end = self._lines[number]
        return self._source[start:end].replace("\0", "\ufffd")

    def _line(self, token: Token, number: int, hashes: str) -> _Line | None:
        """Find the content of a paragraph or a heading in the source; `hashes` are before a heading."""
        starts, places = [], []
        offset = 0
        for i, part in enumerate(token.content.split("\n")):
            text, stripped = self._text(number + i), part.strip(" \t")
            if hashes:
                match = re.search(rf"{hashes}[ \t]+", text)
                place = match.end() if match else 0
            else:
                place = len(text.rstrip(" \t")) - len(stripped)
            if place < 0 or not text.startswith(stripped, place):
                return None
            starts.append(offset + len(part) - len(part.lstrip(" \t")))
            places.append(self._lines[number + i][0] + place)
            offset += len(part) + 1
        return _Line(token.content, starts, places)

    def _cells(self, cells: Sequence[Token], number: int) -> list[_Line]:
        """Find the contents of a row's cells in the source, from the last one to the first one."""
        text = self._text(number).rstrip(" \t")
        end = len(text)
        found = []
        for cell in reversed(cells):
            if not cell.content:
                continue
            while end and text[end - 1] in " \t|":
                end -= 1
            parts = cell.content.split("|")
            start = end - len(cell.content) - (len(parts) - 1)
            if start < 0 or text[start:end] != "\\|".join(parts):
                return []
            bars = [match.end() for match in re.finditer(r"\|", cell.content)]
            starts = [0, *bars]
            places = [self._lines[number][0] + start + offset + i for i, offset in enumerate(starts)]
            found.append(_Line(cell.content, starts, places))
            end = start
        return found[::-1]

    def _add(self, line: _Line, around: Surroundings) -> None:
        self._budget.check()
        if sum(map(line.content.count, _SIGNS)) > _MOST_SIGNS:
            raise MarkupError(f"has more than {_MOST_SIGNS} signs of markup in a paragraph")
        if line.content.count("[") > _MOST_BRACKETS:
            raise MarkupError(f"has more than {_MOST_BRACKETS} brackets in a paragraph")
        items = items_of(line.content, self._references)
        if items is None:
            return
        tags = {item.start: emphasis_as_html(item.name, closes=item.kind is Kind.CLOSE) for item in fixed(items)}
        found: list[Item] = []
        links: list[Item] = []
        for item in items:
            if item.kind is Kind.OPEN and item.name == "link":
                links.append(item)
            placed = replace(item, start=line.place(item.start), end=line.place(item.end))
            if tag := tags.get(item.start):
                self._builder.rewrite(placed.start, placed.end, tag)
            elif item.kind is not Kind.TEXT:
                opening = links.pop() if item.kind is Kind.CLOSE and item.name == "link" else None
                self._add_rewritten(line.content, item, placed, opening, around)
            found.append(placed)
        backquotes = lone_backquotes(line.content)
        for number, block in self._builder.add_line(found).items():
            self._surroundings[number] = replace(
                around,
                starts_line=around.starts_line and block.start in line.places,
                backquotes=backquotes & lone_backquotes(self._source[block.start : block.end]),
            )

    def _add_rewritten(
        self, content: str, item: Item, placed: Item, opening: Item | None, around: Surroundings
    ) -> None:
        """Write a tag in another way if it would not fit into another line, or depends on text that is translated."""
        written = content[item.start : item.end]
        if item.kind is Kind.BREAK:
            return
        if opening is not None and written in ("]", "][]"):
            label = content[opening.end : item.start].replace("\n", " ")
            self._builder.rewrite(placed.start, placed.end, f"][{label}]")
        elif item.name == "image" and written.endswith("]") and ("][" not in written or written.endswith("[]")):
            label = written.removesuffix("[]").replace("\n", " ")
            self._builder.rewrite(placed.start, placed.end, f"{label}{label[1:]}")
        elif "\n" in written:
            self._builder.rewrite(placed.start, placed.end, written.replace("\n", " "))
        elif item.name == "image" and any(character.isalnum() for character in item.text):
            close = content.find("](", item.start, item.end)
            start = placed.start + 2
            end = placed.start + close - item.start
            if close >= 0 and "\\" not in content[item.start : close] and "|" not in content[item.start : close]:
                number = self._builder.add_attribute(start, end, item.text)
                self._surroundings[number] = around
                self._images.add(number)


def _write(
    surroundings: Mapping[int, Surroundings],
    images: Collection[int],
    references: dict[str, Any],
    number: int,
    parts: Sequence[Part],
) -> str:
    """Write a block, from what is around each block, the blocks that are texts of images, and the references."""
    around = surroundings[number]
    if number in images:
        return write_alternative("".join(part.text for part in parts), around)
    return write_line(parts, references, around)
