"""Reads HTML, and writes it with translated texts.

A line of text between two block elements is a block to translate, with its inline elements as marks. So are the values
of `alt` and `title`. Nothing else of the source changes, not even what is malformed: the tags of an element that is not
closed, or that crosses another one, stay where they are, and cut the line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from translane_server.core.budget import UNLIMITED, Budget
from translane_server.text.markup import elements
from translane_server.text.markup.document import Document, Item, Kind, MarkupError, Part
from translane_server.text.markup.inline import Builder

if TYPE_CHECKING:
    import turbohtml

_FINISHES = (">", '">', "'>")  # of a tag, which may end within a value
_ATTRIBUTE = re.compile(
    r"""[ \t\r\n\f/]*+(?P<name>[^ \t\r\n\f/>][^ \t\r\n\f/>=]*+)"""
    r"""(?:[ \t\r\n\f]*+=[ \t\r\n\f]*+(?P<value>"[^"]*+"|'[^']*+'|[^ \t\r\n\f>"'][^ \t\r\n\f>]*+))?+"""
)


def _without_unfinished_tag(source: str) -> str:
    """Return a text up to a tag that the text ends within.

    The tokenizer says nothing of such a tag. So the text is tokenized with signs behind it that would finish the tag.
    If they become text, there is no such tag.
    """
    import turbohtml  # takes a while, and most servers never see markup

    alone = list(turbohtml.tokenize(source))
    last = alone[-1].data if alone and alone[-1].type is turbohtml.TokenType.TEXT else ""
    for finish in _FINISHES:
        found = list(turbohtml.tokenize(source + finish))
        if found and found[-1].type is not turbohtml.TokenType.TEXT:
            (place,) = _places(source + finish, found[-1:])
            return source[:place] if len(found) > len(alone) else source
        if found and found[-1].data == f"{last}{finish}":
            break
    return source


def _tokens(source: str) -> list[tuple[turbohtml.Token, int, int]]:
    """Return the tokens of a text that ends within no tag, each with where it starts and ends [characters]."""
    import turbohtml

    found = list(turbohtml.tokenize(source))
    spans = pairwise([*_places(source, found), len(source)])
    return [(token, *span) for token, span in zip(found, spans, strict=True)]


def _places(source: str, found: Sequence[turbohtml.Token]) -> list[int]:
    """Return where each token starts."""
    lines = [0, *(match.end() for match in re.finditer(r"\r\n?|\n", source))]
    return [lines[token.line - 1] + token.col for token in found]


def translates(name: str, token: turbohtml.Token, *, inherited: bool) -> bool:
    """Whether an element's text is translated."""
    if name in elements.RAW:
        return False
    attributes = dict(token.attrs or ())
    choice = attributes.get("translate")
    if choice is not None and choice.lower() in ("", "yes", "no"):
        return choice.lower() != "no"
    if "notranslate" in (attributes.get("class") or "").split():
        return False
    return inherited and name not in elements.PROTECTED


# As many elements within each other as browsers allow.
_MOST_OPEN = 512
_MOST_CDATA = 20
_CDATA = "<![CDATA["
_TEXT_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\u00a0": "&nbsp;"})
_QUOTES = {'"': "&quot;", "'": "&#39;"}


def parse_html(text: str, budget: Budget = UNLIMITED) -> Document:
    """Find what is translated of a page, or a part of a page. The budget is checked at each tag and text.

    Raises:
        MarkupError: the text has too many blocks, or too many elements within each other.
        OverBudgetError, WorkEndedError: see `Budget.check`.
    """
    source = tokenized = _without_unfinished_tag(text)
    rest = text[len(source) :]
    for _ in range(_MOST_CDATA):
        reader = _Reader(source, tokenized)
        hidden = reader.read(budget)
        if hidden is None:
            document = reader.document()
            return replace(document, template=[*document.template, rest]) if rest else document
        # The tokenizer takes a CDATA section for a comment that ends at the first ">".
        inner = re.sub(r"[^\r\n]", "x", tokenized[hidden.start + 4 : hidden.stop - 3])
        tokenized = f"{tokenized[: hidden.start]}<!--{inner}-->{tokenized[hidden.stop :]}"
    raise MarkupError(f"has {_MOST_CDATA} or more CDATA sections")


def _write(quotes: Mapping[int, str], number: int, parts: Sequence[Part]) -> str:
    """Write a block; `quotes` are those around the values of attributes, by the numbers of their blocks."""
    written = "".join(part.text if part.is_tag else escape_html(part.text) for part in parts)
    if number not in quotes:
        return written
    quote = quotes[number]
    if not quote and written.isalnum():
        return written
    inner = written.replace(quote or '"', _QUOTES[quote or '"'])
    return inner if quote else f'"{inner}"'


def escape_html(text: str) -> str:
    """Return HTML that says `text`."""
    return text.translate(_TEXT_ESCAPES)


@dataclass(slots=True)
class _Open:
    """An element that is open."""

    name: str
    is_translated: bool  # whether its text is translated
    is_foreign: bool  # whether its content is that of a picture or a formula


@dataclass(slots=True)
class _Protected:
    """A part of the source that is not translated, while it is read."""

    start: int  # where it starts in the source
    depth: int  # how many elements are open around it
    is_word: bool  # whether it is a part of a sentence
    can_move: bool  # whether it is an element in a line whose tags all pair up


class _Reader:
    """Reads a text tag by tag, and makes a document of it."""

    def __init__(self, source: str, tokenized: str) -> None:
        self._source = source
        self._tokenized = tokenized  # the source without CDATA sections
        self._builder = Builder(source)
        self._quotes: dict[int, str] = {}  # of attributes' blocks: what is around the value in the source
        self._line: list[Item] = []
        self._open: list[_Open] = []
        self._counts: Counter[str] = Counter()
        self._protected: _Protected | None = None

    def read(self, budget: Budget) -> range | None:
        """Read all of the text; or return where a CDATA section is that the tokenizer does not know."""
        for token, start, end in _tokens(self._tokenized):
            budget.check()
            if end <= start:
                continue
            kind = token.type.name
            if kind == "TEXT":
                if self._is_translated():
                    self._line.append(Item(Kind.TEXT, start, end, token.data or ""))
            elif kind == "START_TAG":
                self._start_tag(token, token.tag or "", start, end)
            elif kind == "END_TAG":
                self._end_tag(token.tag or "", start, end)
            elif self._in_foreign() and self._tokenized.startswith(_CDATA, start):
                close = self._tokenized.find("]]>", start)
                return range(start, len(self._source) if close < 0 else close + 3)
            elif self._is_translated():
                self._line.append(Item(Kind.SINGLE, start, end))
        self._pop_to(0, len(self._source))
        self._flush()
        return None

    def document(self) -> Document:
        return self._builder.document(partial(_write, self._quotes))

    def _is_translated(self) -> bool:
        return self._open[-1].is_translated if self._open else True

    def _in_foreign(self) -> bool:
        return bool(self._open) and self._open[-1].is_foreign

    def _flush(self) -> None:
        """End the line."""
        if self._line:
            self._builder.add_line(self._line)
            self._line = []

    def _start_tag(self, token: turbohtml.Token, name: str, start: int, end: int) -> None:
        self._end_elements_before(name, start)
        was_translated = self._is_translated()
        is_translated = translates(name, token, inherited=was_translated)
        is_block = name in elements.BLOCKS and not self._in_foreign()
        is_foreign = name in elements.FOREIGN or self._in_foreign()
        is_empty = token.self_closing if is_foreign else name in elements.VOID
        if is_translated:
            self._add_attributes(token, name, start, end)
        if is_block and was_translated:
            self._flush()
        if is_empty:
            if was_translated and not is_block:
                self._line.append(Item(Kind.SINGLE, start, end))
            return
        if len(self._open) == _MOST_OPEN:
            raise MarkupError(f"has more than {_MOST_OPEN} elements within each other")
        if was_translated and not is_translated:
            if self._protected is not None:  # within an element that is translated in one that is not
                self._flush()
            else:
                self._protected = _Protected(start, len(self._open), name not in elements.NO_WORDS, not is_block)
        elif was_translated and not is_block:
            self._line.append(Item(Kind.OPEN, start, end, name=name))
        elif is_translated and self._protected is not None:
            self._protected.can_move = False
            self._flush()
        self._open.append(_Open(name, is_translated, is_foreign and name not in elements.HTML_WITHIN_FOREIGN))
        self._counts[name] += 1

    def _end_elements_before(self, name: str, start: int) -> None:
        """End the elements that a start tag ends."""
        if self._in_foreign() and name in elements.ENDS_FOREIGN:
            depth = len(self._open)
            while depth and self._open[depth - 1].is_foreign:
                depth -= 1
            self._pop_to(depth, start)
        if name in elements.NOT_WITHIN_ITSELF and self._counts[name]:
            self._flush()
            if self._protected is not None:
                self._protected.can_move = False
        ended, beyond = elements.ENDED_BY.get(name, (frozenset(), frozenset()))
        if not any(self._counts[other] for other in ended):
            return
        depth = found = len(self._open)
        while depth and self._open[depth - 1].name not in beyond:
            depth -= 1
            if self._open[depth].name in ended:
                found = depth
        if found < len(self._open):
            self._pop_to(found, start)

    def _end_tag(self, name: str, start: int, end: int) -> None:
        was_translated = self._is_translated()
        depth = self._depth_of(name)
        if depth is None:
            if self._protected is not None:
                self._protected.can_move = False
        elif depth == len(self._open) - 1:
            protected = self._protected
            self._pop_to(depth, end, has_end_tag=True)
            if protected is not None and self._protected is None:
                return
        else:
            self._pop_to(depth, start)
        if not (was_translated or self._is_translated()):
            return
        if name in elements.BLOCKS or not was_translated:
            self._flush()
        else:
            self._line.append(Item(Kind.CLOSE, start, end, name=name))

    def _depth_of(self, name: str) -> int | None:
        """Return which open element an end tag ends; None if it ends none. In a line, it ends none beyond the block."""
        if not self._counts[name]:
            return None
        for depth in range(len(self._open) - 1, -1, -1):
            other = self._open[depth].name
            if other == name:
                return depth
            if other in elements.BLOCKS and name not in elements.BLOCKS:
                return None
        return None

    def _pop_to(self, depth: int, place: int, *, has_end_tag: bool = False) -> None:
        """End elements until `depth` are open. The last one ends at `place`."""
        while len(self._open) > depth:
            element = self._open.pop()
            self._counts[element.name] -= 1
            if self._protected is None:
                continue
            if not has_end_tag:
                self._protected.can_move = False
            if self._protected.depth < len(self._open):
                if element.is_translated != self._is_translated():
                    self._flush()
                continue
            protected, self._protected = self._protected, None
            if protected.can_move:
                self._line.append(Item(Kind.SINGLE, protected.start, place, is_word=protected.is_word))
            else:
                self._flush()

    def _add_attributes(self, token: turbohtml.Token, name: str, start: int, end: int) -> None:
        """Add the values of attributes that readers see to what is translated."""
        wanted = {"title", "alt"} if name in ("img", "area", "input") else {"title"}
        # The first of two attributes of the same name counts.
        values = {key: value for key, value in reversed(token.attrs or ()) if key in wanted and value}
        for match in _ATTRIBUTE.finditer(self._source, start + 1 + len(name), end - 1) if values else ():
            value = values.pop(match["name"].lower(), "")
            if match["value"] and any(map(str.isalnum, value)):
                first, last = match.span("value")
                quote = match["value"][0] if match["value"][0] in _QUOTES else ""
                number = self._builder.add_attribute(first + len(quote), last - len(quote), value)
                self._quotes[number] = quote
