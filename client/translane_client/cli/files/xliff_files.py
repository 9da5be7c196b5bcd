"""XLIFF 1.2 (https://docs.oasis-open.org/xliff/v1.2/os/xliff-core.html) and 2.x (…/v2.1/xliff-core-v2.1.html).

Each <target> is filled from its <source>, inline elements included. Everything else stays byte for byte: the parser
only tells where the elements are. It is expat, which opens no other file; documents that declare entities are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO
from xml.parsers import expat

from translane_client.cli.files.document import Document, Edit, parts_of, read_document
from translane_client.cli.files.part import Part, is_worth_translating, trimmed
from translane_client.cli.text_files import FileError

_ENCODING = re.compile(rb"""\A<\?xml[^>]*?encoding\s*=\s*["']([A-Za-z0-9_.:-]+)["']""")
_START_TAG = re.compile(rb"""<[^\s/>]+(?:[^>"']|"[^"]*"|'[^']*')*>""")
_STATE = re.compile(r"""\s+state(?:-qualifier)?\s*=\s*(?:"[^"]*"|'[^']*')""")
_UNTRANSLATED = {"new", "needs-translation", "initial"}
"""States of a target that is still to be translated, whatever it holds."""


@dataclass(slots=True)
class _Element:
    """A <source>, <seg-source> or <target>: byte offsets of it and of its content."""

    start: int
    tag_end: int
    state: str
    end: int = -1
    """Offset after the element."""
    content_end: int = -1


@dataclass(slots=True)
class _Unit:
    """A <trans-unit> of XLIFF 1.2, or a <segment> of XLIFF 2."""

    start: int
    tag_end: int
    state: str
    translate: bool
    elements: dict[str, _Element] = field(default_factory=dict)


def xliff_parts(file: BinaryIO, name: str, *, replace: bool) -> Iterator[Part]:
    """The parts of an XLIFF file: one for each target to fill.

    Args:
        file: The file, open for reading.
        name: The file's name in errors.
        replace: Whether to replace the targets that are there, too.

    Raises:
        FileError: the file cannot be read, is not well-formed, or is no XLIFF.
    """
    document = read_document(file, name, _ENCODING)
    return parts_of(document, list(_edits(document, replace=replace)))


def _edits(document: Document, *, replace: bool) -> Iterator[Edit]:
    data = document.text.encode()
    reader = _Reader(document.name, data)
    reader.read()
    characters = _Characters(data)
    for unit in reader.units:
        source = unit.elements.get("seg-source") or unit.elements.get("source")
        target = unit.elements.get("target")
        if source is None or not unit.translate:
            continue
        if target and not replace and _text(data, target).strip() and target.state not in _UNTRANSLATED:
            continue
        before, core, after = trimmed(_text(data, source))
        if not is_worth_translating(re.sub(r"<[^<>]*>", "", core)):
            continue
        if not reader.is_version_1:
            yield from _segment_state(data, unit, characters)
        yield _place(reader, unit, source, target, (before, core, after), characters)


def _segment_state(data: bytes, unit: _Unit, characters: _Characters) -> Iterator[Edit]:
    """The state of a segment of XLIFF 2, which is told in its start tag."""
    if unit.state in ("", "initial"):
        tag = data[unit.start : unit.tag_end].decode()
        start, end = characters.at(unit.start), characters.at(unit.tag_end)
        yield Edit(start, end, (), lambda _: _with(tag, 'state="translated"'))


def _place(
    reader: _Reader,
    unit: _Unit,
    source: _Element,
    target: _Element | None,
    text: tuple[str, str, str],
    characters: _Characters,
) -> Edit:
    data = reader.data
    first = unit.elements.get("source", source)
    name = data[first.start + 1 : first.tag_end].decode()
    name = re.split(r"[\s/>]", name, maxsplit=1)[0].removesuffix("source") + "target"
    if target:
        tag = data[target.start : target.tag_end].decode().removesuffix("/>").rstrip()
        tag = tag if tag.endswith(">") else f"{tag}>"
        start, end = target.start, target.end
    else:
        tag = f"<{name}>"
        start = end = max(element.end for element in unit.elements.values())
        space = data[data.rfind(b">", 0, first.start) + 1 : first.start].decode()
        tag = ("" if space.strip() else space) + tag
    if reader.is_version_1:
        tag = _with(tag, 'state="translated" state-qualifier="mt-suggestion"')
    before, core, after = text

    def render(translations: Sequence[str]) -> str:
        filled = before + translations[0].strip() + after
        _check(filled)
        return f"{tag}{filled}</{name}>"

    return Edit(characters.at(start), characters.at(end), (core,), render)


def _with(tag: str, attributes: str) -> str:
    """A start tag with other attributes of its state."""
    body = _STATE.sub("", tag).removesuffix(">")
    return f"{body} {attributes}>"


def _text(data: bytes, element: _Element) -> str:
    return data[element.tag_end : element.content_end].decode()


def _check(content: str) -> None:
    """ValueError: the content is not well-formed, so that it would break the file."""
    parser = expat.ParserCreate()
    try:
        parser.Parse(f"<target>{content}</target>", True)
    except expat.ExpatError as error:
        problem = expat.ErrorString(error.code)
        raise ValueError(f"the server's translation is no content of XLIFF ({problem})") from error


class _Characters:
    """Turns byte offsets, which only grow, into indexes of characters."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = self._index = 0

    def at(self, offset: int) -> int:
        """The index of the character at the offset."""
        self._index += len(self._data[self._offset : offset].decode())
        self._offset = offset
        return self._index


class _Reader:
    """Finds the units of a file."""

    def __init__(self, name: str, data: bytes) -> None:
        self.units = list[_Unit]()
        self.version = ""
        self._name = name
        self.data = data
        self._path = list[tuple[str, bool]]()
        """Name of each open element, and whether it is translated."""
        self._unit: _Unit | None = None
        self._parser = expat.ParserCreate(encoding="utf-8")
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.EntityDeclHandler = self._refuse_entity

    @property
    def is_version_1(self) -> bool:
        """Whether the file is of XLIFF 1.x."""
        return self.version.startswith("1.")

    def read(self) -> None:
        """Finds the units. FileError: the file is not well-formed, or no XLIFF of a known version."""
        try:
            self._parser.Parse(self.data, True)
        except expat.ExpatError as error:
            problem = expat.ErrorString(error.code)
            raise FileError(f"{self._name}, line {error.lineno}: no well-formed XML ({problem})") from error

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.rpartition(":")[2]
        if not self._path:
            self.version = attributes.get("version", "")
            if name != "xliff" or not self.version.startswith(("1.", "2.")):
                raise FileError(f"{self._name}: no XLIFF of version 1 or 2")
        parent, translated = self._path[-1] if self._path else ("", True)
        translated = {"yes": True, "no": False}.get(attributes.get("translate", ""), translated)
        self._path.append((name, translated))
        start = self._parser.CurrentByteIndex
        if name == ("trans-unit" if self.is_version_1 else "segment"):
            self._unit = _Unit(start, self._tag_end(start), attributes.get("state", ""), translated)
            self.units.append(self._unit)
        elif self._unit and parent in ("trans-unit", "segment") and name in ("source", "seg-source", "target"):
            self._unit.elements[name] = _Element(start, self._tag_end(start), attributes.get("state", ""))

    def _end(self, _: str) -> None:
        name = self._path.pop()[0]
        parent = self._path[-1][0] if self._path else ""
        if name in ("trans-unit", "segment"):
            self._unit = None
        element = self._unit.elements.get(name) if self._unit and parent in ("trans-unit", "segment") else None
        if element is None:
            return
        if self.data.endswith(b"/>", element.start, element.tag_end):
            element.content_end = element.end = element.tag_end
        else:
            at = self._parser.CurrentByteIndex
            element.content_end, element.end = at, self.data.index(b">", at) + 1

    def _tag_end(self, start: int) -> int:
        found = _START_TAG.match(self.data, start)
        if found is None:
            raise FileError(f"{self._name}: the tag at byte {start} cannot be read")
        return found.end()

    def _refuse_entity(self, *_: object) -> None:
        raise FileError(f"{self._name}, line {self._parser.CurrentLineNumber}: XLIFF with declared entities is refused")
