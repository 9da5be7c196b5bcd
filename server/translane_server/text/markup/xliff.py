"""XLIFF: the content of a `<source>`, text with inline elements, of version 1.2 or 2.

Inline elements: https://docs.oasis-open.org/xliff/v1.2/os/xliff-core.html#Struct_InLine and
https://docs.oasis-open.org/xliff/xliff-core/v2.1/os/xliff-core-v2.1-os.html#inlinelements.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from xml.parsers import expat

from translane_server.text.markup.document import MOST_DEPTH, Document, Item, Kind, MarkupError, Part
from translane_server.text.markup.inline import Builder

# Codes that stand alone; the starts and the ends of parts whose tags need not nest. Their content is not translated.
_SINGLES = frozenset(["x", "ph", "it", "cp", "ut"])
_STARTS = {"bpt": "bpt", "bx": "bx", "sc": "sc", "sm": "sm"}
_ENDS = {"ept": "bpt", "ex": "bx", "ec": "sc", "em": "sm"}

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_NOT_OF_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LINE_END = re.compile(r"\r\n?|\n")
_ROOT = "s"


def parse_xliff(text: str) -> Document:
    """Find what is translated of the content of a `<source>`.

    Raises:
        MarkupError: the text is not well-formed, or has too many elements within each other.
    """
    builder = Builder(text)
    builder.add_line(_paired(_items(text)))
    return builder.document(_write)


def _write(_: int, parts: Sequence[Part]) -> str:
    return "".join(part.text if part.is_tag else escape_xml(part.text) for part in parts)


def escape_xml(text: str) -> str:
    """Return XML that says `text`, without characters that XML cannot have."""
    return _NOT_OF_XML.sub("", text).translate(_ESCAPES)


def _items(text: str) -> list[Item]:
    """Return the items of a text. An element whose content is not translated is one of them.

    Raises:
        MarkupError: see `parse_xliff`.
    """
    data = f"<{_ROOT}>{text}</{_ROOT}>".encode("utf-8", "replace")
    parser = expat.ParserCreate("utf-8")
    # Items, and what they say in parts. They start at bytes, and each ends where the next one starts.
    found: list[tuple[Item, list[str]]] = []
    depth = hidden = 0  # open elements, and how many are open in the one whose content is not translated

    def add(kind: Kind, name: str = "", is_word: bool = False) -> None:
        if not hidden:
            found.append((Item(kind, parser.CurrentByteIndex, 0, name=name, is_word=is_word), []))

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        nonlocal depth, hidden
        depth += 1
        if depth > MOST_DEPTH + 1:
            raise MarkupError(f"has more than {MOST_DEPTH} elements within each other")
        code = _code(tag.rpartition(":")[2], attributes)
        add(*(code or (Kind.OPEN, "element")))
        hidden += bool(hidden or code)

    def end(_: str) -> None:
        nonlocal depth, hidden
        depth -= 1
        if hidden:
            hidden -= 1
        else:
            add(Kind.CLOSE, "element")

    def said(part: str = "") -> None:
        if found[-1][0].kind is not Kind.TEXT:
            add(Kind.TEXT)
        if not hidden:
            found[-1][1].append(part)

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = said
    parser.StartCdataSectionHandler = said
    parser.CommentHandler = lambda _: add(Kind.SINGLE)
    parser.ProcessingInstructionHandler = lambda *_: add(Kind.SINGLE)
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        reason = f"{expat.ErrorString(error.code)} (line {error.lineno}, column {_column(text, error)})"
        raise MarkupError(f"is no well-formed XML: {reason}") from None
    characters = Characters(data)
    places = [characters.at(item.start) - len(_ROOT) - 2 for item, _ in found]
    return [
        replace(item, start=start, end=end, text="".join(parts))
        for (item, parts), (start, end) in zip(found[1:-1], pairwise(places[1:]), strict=True)
    ]


def _column(text: str, error: expat.ExpatError) -> int:
    """Return the column of an error in the caller's text: the text's end for an error that the root's end tag shows."""
    column = error.offset + 1 - (len(_ROOT) + 2 if error.lineno == 1 else 0)
    lines = _LINE_END.split(text)
    return min(column, len(lines[error.lineno - 1]) + 1) if error.lineno <= len(lines) else column


class Characters:
    """Turns places in bytes of UTF-8, which only grow, into places in characters."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._bytes = self._characters = 0

    def at(self, place: int) -> int:
        """Return the place in characters."""
        self._characters += len(self._data[self._bytes : place].decode())
        self._bytes = place
        return self._characters


def _code(name: str, attributes: Mapping[str, str]) -> tuple[Kind, str, bool] | None:
    """Return what the item of an element is whose content is not translated; None for another element.

    This is its kind, its name, and whether it is a word.
    """
    number = attributes.get("rid") or attributes.get("i") or attributes.get("id", "")
    if name in _STARTS:
        return Kind.OPEN, f"{_STARTS[name]} {number}", False
    if name in _ENDS:
        return Kind.CLOSE, f"{_ENDS[name]} {attributes.get('startRef') or number}", False
    if attributes.get("translate") == "no" or attributes.get("mtype") == "protected" or name in _SINGLES:
        return Kind.SINGLE, "", True
    return None


def _paired(items: list[Item]) -> list[Item]:
    """Make single items of starts without an end, and of ends without a start: the other one is in another text."""
    starts: defaultdict[str, list[int]] = defaultdict(list)
    for i, item in enumerate(items):
        if item.kind is Kind.OPEN:
            starts[item.name].append(i)
        elif item.kind is Kind.CLOSE and starts[item.name]:
            starts[item.name].pop()
        elif item.kind is Kind.CLOSE:
            items[i] = replace(item, kind=Kind.SINGLE)
    for numbers in starts.values():
        for i in numbers:
            items[i] = replace(items[i], kind=Kind.SINGLE)
    return items
