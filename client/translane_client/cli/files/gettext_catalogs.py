"""Gettext catalogues (.po, https://www.gnu.org/software/gettext/manual/html_node/PO-Files.html).

polib says what the entries are. Only the lines of a msgstr change, so that everything else stays byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, BinaryIO

from translane_client.cli.files.document import Document, Edit, Span, parts_of, read_document
from translane_client.cli.files.part import Part, is_worth_translating, trimmed
from translane_client.cli.text_files import FileError

if TYPE_CHECKING:
    import polib

_CHARSET = re.compile(rb'^"Content-Type:[^"\n]*charset=([A-Za-z0-9_.:-]+)', re.IGNORECASE | re.MULTILINE)
_SLOT = re.compile(r'([ \t]*)msgstr(?:\[(\d+)\])?[ \t]*"')
_WIDTH = 79
"""Most characters of a line, as gettext's tools write them."""
_BREAKS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
"""Characters that polib takes for ends of lines, and gettext does not."""
_HIDDEN: dict[str, str | int | None] = {character: chr(0xF0000 + ord(character)) for character in _BREAKS}
"""What stands for them while polib reads: characters of a plane for private use."""


_SHOWN = {0xF0000 + ord(character): character for character in _BREAKS}


def po_parts(file: BinaryIO, name: str, *, replace: bool) -> Iterator[Part]:
    """The parts of a catalogue: one for each entry to fill.

    Args:
        file: The catalogue, open for reading.
        name: The file's name in errors.
        replace: Whether to replace the translations that are there, too, and those that are fuzzy.

    Raises:
        FileError: the file cannot be read, or is no catalogue, or polib is not installed.
    """
    document = read_document(file, name, _CHARSET)
    return parts_of(document, _edits(document, replace=replace))


@dataclass(frozen=True, slots=True)
class _Slot:
    """A msgstr of an entry."""

    start: int
    end: int
    keyword: str
    """The beginning of the line: msgstr, or msgstr[1]."""
    plural: bool


def _edits(document: Document, *, replace: bool) -> Iterator[Edit]:
    entries = _entries(document)
    lines = document.lines
    starts = [max(0, (entry.linenum or 1) - 1) for entry in entries]
    for entry, (begin, end) in zip(entries, pairwise([*starts, len(lines)]), strict=True):
        if entry.obsolete or not entry.msgid or (entry.fuzzy and not replace):
            continue
        for slot in _slots(document.text, lines[begin:end]):
            there = entry.msgstr_plural.get(_number(slot), "") if entry.msgid_plural else entry.msgstr
            if there and not replace:
                continue
            source = entry.msgid_plural if slot.plural else entry.msgid
            before, core, after = trimmed(source.translate(_SHOWN))
            if is_worth_translating(core):
                yield _edit(slot, before, core, after, document.line_end)


def _entries(document: Document) -> Sequence[polib.POEntry]:
    try:
        import polib
    except ModuleNotFoundError:
        raise FileError(f"{document.name}: files of gettext need polib: pip install polib") from None
    text = "\n".join(document.text[line.start : line.end] for line in document.lines).translate(str.maketrans(_HIDDEN))
    try:
        return list(
            polib.pofile(text + "\n", check_for_duplicates=False)
        )  # a text with a line break is never taken for a path
    except (OSError, ValueError, IndexError, AttributeError) as error:
        found = re.search(r"\(line (\d+)\)(?:: (.*))?", str(error))
        if not found:
            raise FileError(f"{document.name}: no catalogue of gettext ({error})") from error
        problem = f"no catalogue of gettext ({found[2]})" if found[2] else "no catalogue of gettext"
        raise FileError(f"{document.name}, line {found[1]}: {problem}") from error


def _slots(text: str, lines: Sequence[Span]) -> Iterator[_Slot]:
    for index, line in enumerate(lines):
        found = _SLOT.match(text, line.start, line.end)
        if not found:
            continue
        last = line
        for following in lines[index + 1 :]:
            if not text.startswith('"', following.start + _indentation(text, following)):
                break
            last = following
        start = found.end(1)
        yield _Slot(start, last.end, text[start : found.end() - 1].rstrip(), plural=int(found[2] or 0) > 0)


def _indentation(text: str, line: Span) -> int:
    body = text[line.start : line.end]
    return len(body) - len(body.lstrip(" \t"))


def _number(slot: _Slot) -> int:
    found = re.search(r"\d+", slot.keyword)
    return int(found[0]) if found else 0


def _edit(slot: _Slot, before: str, core: str, after: str, line_end: str) -> Edit:
    def render(translations: Sequence[str]) -> str:
        return _written(slot.keyword, before + translations[0].strip() + after, line_end)

    return Edit(slot.start, slot.end, (core,), render)


def _written(keyword: str, text: str, line_end: str) -> str:
    """A msgstr with its text: on one line where there is room, otherwise on lines of their own."""
    import polib

    pieces = re.findall(r"[^\n]*\n|[^\n]+", text)
    if len(pieces) <= 1 and len(keyword) + len(polib.escape(text)) + 3 <= _WIDTH:
        return f'{keyword} "{polib.escape(text)}"'
    lines = [line for piece in pieces for line in _wrapped(polib.escape(piece))]
    return line_end.join([f'{keyword} ""', *(f'"{line}"' for line in lines)])


def _wrapped(text: str) -> Iterator[str]:
    """Lines of an escaped text, cut after spaces."""
    line = ""
    for word in re.findall(r"[^ ]*(?: +|\Z)", text):
        if line and len(line) + len(word) > _WIDTH - 2:
            yield line
            line = ""
        line += word
    if line:
        yield line
