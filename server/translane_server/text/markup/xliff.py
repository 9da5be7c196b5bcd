"""XLIFF: the content of a `<source>`, text with inline elements, of version 1.2 or 2.

Inline elements: https://docs.oasis-open.org/xliff/v1.2/os/xliff-core.html#Struct_InLine and
https://docs.oasis-open.org/xliff/xliff-core/v2.1/os/xliff-core-v2.1-os.html#inlinelements.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
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
    builder.add_line(_paired(list(_items(_events(text), builder.escape))))
    return builder.document(_write)


def _write(_: int, parts: Sequence[Part]) -> str:
    return "".join(part.text if part.is_tag else escape_xml(part.text) for part in parts)


def escape_xml(text: str) -> str:
    """Return XML that says `text`, without characters that XML cannot have."""
    return _NOT_OF_XML.sub("", text).translate(_ESCAPES)


class _What(Enum):
    START = auto()
    END = auto()
    TEXT = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class _Event:
    """What the parser finds: a tag, text, a comment or a processing instruction."""

    what: _What  # which of them
    start: int  # where it starts in the text [characters]
    end: int  # where it ends
    text: str  # an element's name without its prefix, or what a text says
    attributes: Mapping[str, str]  # those of a start tag


# An event, where it starts in bytes, what it says in parts, and its attributes.
_Found = tuple[_What, int, list[str], Mapping[str, str]]


def _events(text: str) -> list[_Event]:
    """Parse a text. Elements within an element whose content is not translated are events, too."""
    data = f"<{_ROOT}>{text}</{_ROOT}>".encode("utf-8", "replace")
    parser = expat.ParserCreate("utf-8")
    found: list[_Found] = []
    depth = 0

    def start(name: str, attributes: Mapping[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MOST_DEPTH + 1:
            raise MarkupError(f"has more than {MOST_DEPTH} elements within each other")
        found.append((_What.START, parser.CurrentByteIndex, [name.rpartition(":")[2]], attributes))

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        found.append((_What.END, parser.CurrentByteIndex, [name.rpartition(":")[2]], {}))

    def text_found(said: str = "") -> None:
        if found[-1][0] is not _What.TEXT:
            found.append((_What.TEXT, parser.CurrentByteIndex, [], {}))
        found[-1][2].append(said)

    def other(*_: str) -> None:
        found.append((_What.OTHER, parser.CurrentByteIndex, [], {}))

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text_found
    parser.CommentHandler = other
    parser.ProcessingInstructionHandler = other
    parser.StartCdataSectionHandler = text_found
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise MarkupError(f"is no well-formed XML: {reason}", error.lineno, _column(text, error)) from None
    return _placed(data, found)


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


def _placed(data: bytes, found: Sequence[_Found]) -> list[_Event]:
    """Turn the parser's places, which count bytes of the text within its root, to places in the text."""
    characters = Characters(data)
    places = [characters.at(place) - len(_ROOT) - 2 for _, place, _, _ in found]
    return [
        _Event(what, start, end, "".join(said), attributes)
        for (what, _, said, attributes), (start, end) in zip(found[1:-1], pairwise(places[1:]), strict=True)
    ]


def _items(events: Sequence[_Event], escape: Callable[[str], str]) -> Iterator[Item]:
    """Yield the items of a text, whose texts are escaped. An element whose content is not translated is one."""
    i = 0
    while i < len(events):
        event = events[i]
        match event.what:
            case _What.TEXT:
                yield Item(Kind.TEXT, event.start, event.end, escape(event.text))
            case _What.END:
                yield Item(Kind.CLOSE, event.start, event.end, name="element")
            case _What.OTHER:
                yield Item(Kind.SINGLE, event.start, event.end)
            case _What.START if (item := _code(event)) is not None:
                depth = 1
                while depth:
                    i += 1
                    depth += {_What.START: 1, _What.END: -1}.get(events[i].what, 0)
                yield replace(item, end=events[i].end)
            case _What.START:
                yield Item(Kind.OPEN, event.start, event.end, name="element")
        i += 1


def _code(event: _Event) -> Item | None:
    """Return an item for an element whose content is not translated; None for another element."""
    name, attributes = event.text, event.attributes
    if name in _STARTS:
        number = attributes.get("rid") or attributes.get("i") or attributes.get("id", "")
        return Item(Kind.OPEN, event.start, event.end, name=f"{_STARTS[name]} {number}")
    if name in _ENDS:
        number = attributes.get("startRef") or attributes.get("rid") or attributes.get("i") or attributes.get("id", "")
        return Item(Kind.CLOSE, event.start, event.end, name=f"{_ENDS[name]} {number}")
    if attributes.get("translate") == "no" or attributes.get("mtype") == "protected":
        return Item(Kind.SINGLE, event.start, event.end, is_word=True)
    if name in _SINGLES:
        return Item(Kind.SINGLE, event.start, event.end, is_word=True)
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
