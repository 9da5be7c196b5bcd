"""XLIFF 1.2 (https://docs.oasis-open.org/xliff/v1.2/os/xliff-core.html) and 2.x (…/v2.1/xliff-core-v2.1.html).

Each <target> is filled from its <source>, inline elements included. Everything else stays byte for byte: the parser
only tells where the elements are. It is expat, which opens no other file; files with entities of their own are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from xml.parsers import expat

from translane_server.core.budget import Budget
from translane_server.text.documents.document import DocumentError, Place, TextFile, is_worth_translating, trimmed
from translane_server.text.markup.document import MOST_DEPTH
from translane_server.text.markup.xliff import Characters

ENCODING = re.compile(rb"""\A<\?xml[^>]*?encoding\s*=\s*["']([A-Za-z0-9_.:-]+)["']""")
"""Finds the name of the encoding."""

_START_TAG = re.compile(rb"""<[^\s/>]+(?:[^>"']|"[^"]*"|'[^']*')*+>""")
_ATTRIBUTE = re.compile(r"""(?<!\s)\s++([^\s=]++)\s*+=\s*+(?:"[^"]*"|'[^']*')""")
_STATES = frozenset(["state", "state-qualifier", "subState", "approved"])
_MARK = re.compile(r"""<(/?)(?:[\w.-]+:)?mrk\b((?:[^<>"']|"[^"]*"|'[^']*')*+)(?<!/)>""")
_SEGMENT = re.compile(r"""\smtype\s*=\s*["']seg["']""")
_UNTRANSLATED = frozenset(["new", "needs-translation", "initial"])  # states in which a target may hold anything
_CDATA = re.compile(r"<!\[CDATA\[(.*?)(?:\]\]>|\Z)", re.DOTALL)
_UNITS = frozenset(["trans-unit", "segment"])
_ELEMENTS = frozenset(["source", "seg-source", "target"])


@dataclass(slots=True)
class _Element:
    """A <source>, <seg-source> or <target>: where it and its content start and end in the file [bytes]."""

    start: int
    tag_end: int
    state: str
    content_end: int = -1
    end: int = -1


@dataclass(slots=True)
class _Unit:
    """A <trans-unit> of XLIFF 1.2, or a <segment> of XLIFF 2."""

    start: int
    tag_end: int
    state: str
    is_translated: bool
    elements: dict[str, _Element] = field(default_factory=dict)


def read_xliff(file: TextFile, replace: bool, budget: Budget) -> Iterator[Place]:
    """Yield the units that have a source. See `ReadPlaces`.

    Raises:
        DocumentError: the file is not well-formed, or is no XLIFF.
    """
    data = file.text.encode()
    reader = _Reader(data, budget)
    reader.read()
    counted = Characters(data)
    for unit in reader.units:
        source = unit.elements.get("seg-source") or unit.elements.get("source")
        if source is None:
            continue
        target = unit.elements.get("target")
        end = target.end if target else max(element.end for element in unit.elements.values())
        before, core, after = trimmed(_text(data, source))
        state = (target and target.state) or unit.state
        has_target = target and _said(_text(data, target)).strip() and state not in _UNTRANSLATED
        is_open = unit.is_translated and (replace or not has_target)
        text_start = source.tag_end + len(before.encode())
        places = {place: counted.at(place) for place in sorted((unit.start, text_start, end))}
        texts, between = _texts(core) if is_open else ([], [])
        if texts:
            first, last = _around(reader, unit, target, end)
            write = partial(_target, [first + before + between[0], *between[1:-1], between[-1] + after + last])
            yield Place(places[unit.start], places[end], [(places[text_start], text) for text in texts], write)
        else:
            yield Place(places[unit.start], places[end])


def _texts(core: str) -> tuple[list[str], list[str]]:
    """Return the texts of a source that are worth translating, and what stands around and between them.

    Each segment of a <seg-source> is a text. Where something is in no segment, the whole source is one.
    """
    segments = _segments(core)
    for spans in (segments, [(0, len(core))]):
        texts, between, end = list[str](), list[str](), 0
        for start, stop in spans:
            before, text, _ = trimmed(core[start:stop])
            if _is_worth_translating(text):
                texts.append(text)
                between.append(core[end : start + len(before)])
                end = start + len(before) + len(text)
        between.append(core[end:])
        if not any(map(_is_worth_translating, between)):
            break
    return texts, between


def _is_worth_translating(markup: str) -> bool:
    return is_worth_translating(_said(markup))


def _said(markup: str) -> str:
    return re.sub(r"<[^<>]*>", "", _CDATA.sub(r"\1", markup))


def _segments(core: str) -> list[tuple[int, int]]:
    """Return where the content of each <mrk mtype="seg"> starts and ends, without those within another one."""
    found, depth, start = list[tuple[int, int]](), 0, 0
    for mark in _MARK.finditer(core):
        if mark[1]:
            depth = max(0, depth - 1)
            if start and not depth:
                found.append((start, mark.start()))
                start = 0
        elif start or _SEGMENT.search(mark[2]):
            depth += 1
            start = start or mark.end()
    return found


def _target(around: Sequence[str], translations: Sequence[str]) -> str:
    """Return a unit up to the end of its <target>: its texts, and what is `around` them."""
    texts = (text.strip() for text in translations)
    return around[0] + "".join(text + after for text, after in zip(texts, around[1:], strict=True))


def _around(reader: _Reader, unit: _Unit, target: _Element | None, end: int) -> tuple[str, str]:
    """Return what is written of a unit before the content of its target, and after it."""
    data = reader.data
    unit_tag = data[unit.start : unit.tag_end].decode()
    unit_tag = _with(unit_tag, "" if reader.is_version_1 else 'state="translated"')
    between = data[unit.tag_end : target.start if target else end].decode()
    source = unit.elements.get("source") or unit.elements["seg-source"]
    name = re.split(r"[\s/>]", data[source.start + 1 : source.tag_end].decode(), maxsplit=1)[0]
    name = name.removesuffix("seg-source").removesuffix("source") + "target"
    if target:
        tag = data[target.start : target.tag_end].decode().removesuffix("/>").rstrip()
        tag = tag if tag.endswith(">") else f"{tag}>"
    else:
        space = data[data.rfind(b">", 0, source.start) + 1 : source.start].decode()
        between += "" if space.strip() else space
        tag = f"<{name}>"
    if reader.is_version_1:
        tag = _with(tag, 'state="translated" state-qualifier="mt-suggestion"')
    return unit_tag + between + tag, f"</{name}>"


def _with(tag: str, attributes: str) -> str:
    """Return a start tag with other attributes of its state, or without any."""
    kept = _ATTRIBUTE.sub(lambda each: "" if each[1] in _STATES else each[0], tag)
    return f"{kept.removesuffix('>')} {attributes}>" if attributes else kept


def _text(data: bytes, element: _Element) -> str:
    return data[element.tag_end : element.content_end].decode()


class _Reader:
    """Finds the units of a file in UTF-8. The budget is checked at each element."""

    def __init__(self, data: bytes, budget: Budget) -> None:
        self.units = list[_Unit]()
        self.is_version_1 = False
        self.data = data
        self._budget = budget
        self._path = list[tuple[str, bool]]()  # the name of each open element, and whether it is translated
        self._unit: _Unit | None = None
        self._parser = expat.ParserCreate(encoding="utf-8")
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.EntityDeclHandler = self._refuse_entity
        self._parser.SkippedEntityHandler = self._refuse_entity  # which another file would declare

    def read(self) -> None:
        """Find the units. DocumentError: the file is not well-formed, or no XLIFF of a known version."""
        try:
            self._parser.Parse(self.data, True)
        except expat.ExpatError as error:
            raise DocumentError(f"no well-formed XML ({expat.ErrorString(error.code)})", error.lineno) from None

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._budget.check()
        name = tag.rpartition(":")[2]
        if not self._path:
            version = attributes.get("version", "")
            self.is_version_1 = version.startswith("1.")
            if name != "xliff" or not version.startswith(("1.", "2.")):
                raise DocumentError("no XLIFF of version 1 or 2")
        if len(self._path) == MOST_DEPTH:
            raise DocumentError(f"more than {MOST_DEPTH} elements within each other", self._parser.CurrentLineNumber)
        parent, is_translated = self._path[-1] if self._path else ("", True)
        is_translated = {"yes": True, "no": False}.get(attributes.get("translate", ""), is_translated)
        self._path.append((name, is_translated))
        start = self._parser.CurrentByteIndex
        if name == ("trans-unit" if self.is_version_1 else "segment"):
            self._unit = _Unit(start, self._tag_end(start), attributes.get("state", ""), is_translated)
            self.units.append(self._unit)
        elif self._unit and parent in _UNITS and name in _ELEMENTS:
            self._unit.elements[name] = _Element(start, self._tag_end(start), attributes.get("state", ""))

    def _end(self, _: str) -> None:
        name = self._path.pop()[0]
        parent = self._path[-1][0] if self._path else ""
        if name in _UNITS:
            self._unit = None
        element = self._unit.elements.get(name) if self._unit and parent in _UNITS else None
        if element is None:
            return
        if self.data.endswith(b"/>", element.start, element.tag_end):
            element.content_end = element.end = element.tag_end
        else:
            place = self._parser.CurrentByteIndex
            element.content_end, element.end = place, self.data.index(b">", place) + 1

    def _tag_end(self, start: int) -> int:
        found = _START_TAG.match(self.data, start)
        if found is None:
            raise DocumentError("a tag cannot be read", self._parser.CurrentLineNumber)
        return found.end()

    def _refuse_entity(self, *_: object) -> None:
        raise DocumentError("XLIFF with entities of its own is refused", self._parser.CurrentLineNumber)
