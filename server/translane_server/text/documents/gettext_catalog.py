"""Catalogues of gettext (https://www.gnu.org/software/gettext/manual/html_node/PO-Files.html).

Each msgstr without a text is filled from its msgid. Only the lines of a msgstr change. The header, obsolete entries and
fuzzy ones stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from translane_server.core.budget import Budget
from translane_server.text.documents.document import DocumentError, Place, TextFile, is_worth_translating, trimmed

CHARSET = re.compile(
    rb'^[ \t]*(?:msgstr[ \t]*)?"(?:[^"\n]*\\n)?Content-Type:[^"\n\\]*charset=(?!CHARSET\b)([A-Za-z0-9_.:-]+)',
    re.IGNORECASE | re.MULTILINE,
)
"""Finds the name of the encoding in the header. A template has CHARSET in its place."""

_KEYWORD = re.compile(r"[ \t]*(domain|msgctxt|msgid_plural|msgid|msgstr(?:\[[0-9]\])?)[ \t]*")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*+)"[ \t]*')
_STRINGS = re.compile(rf"[ \t]*(?:{_STRING.pattern})++")
_SIGNS = {"n": "\n", "t": "\t", "r": "\r", "v": "\v", "b": "\b", "f": "\f", "a": "\a", "\\": "\\", '"': '"'}
_ESCAPE = re.compile(r'\\([ntrvbfa\\"])|((?:\\[0-7]{1,3}|\\x[0-9A-Fa-f]{1,2})+)')
_BYTE = re.compile(r"\\(?:x([0-9A-Fa-f]{1,2})|([0-7]{1,3}))")
_ESCAPES = str.maketrans({sign: f"\\{letter}" for letter, sign in _SIGNS.items()})
_WIDTH = 79  # characters of a line at most, as gettext's tools write them


@dataclass(slots=True)
class _String:
    """A keyword and its text, which may go on in the lines below."""

    keyword: str  # msgid, or msgstr[1]
    line: int  # the number of the line where it is
    start: int  # where it starts in the file [characters]
    end: int  # where its last line ends
    parts: list[str]  # what each line says

    @property
    def text(self) -> str:
        return "".join(self.parts)


@dataclass(slots=True)
class _Entry:
    """An entry of a catalogue."""

    msgid: _String | None = None
    msgid_plural: _String | None = None
    slots: list[_String] = field(default_factory=list)
    is_fuzzy: bool = False


def read_catalog(file: TextFile, replace: bool, budget: Budget) -> Iterator[Place]:
    """Yield what each msgstr is. See `ReadPlaces`. To replace translations is to replace those that are fuzzy, too.

    Raises:
        DocumentError: the file is no catalogue.
    """
    line_end = file.line_end
    for entry in _entries(file, budget):
        for slot in entry.slots:
            is_of_one = slot is entry.slots[0] and len(entry.slots) > 1
            source = entry.msgid if is_of_one else entry.msgid_plural or entry.msgid
            before, core, after = trimmed(source.text if source else "")
            is_open = replace or not (entry.is_fuzzy or slot.text)
            if source and is_open and is_worth_translating(core):
                write = partial(_slot, slot.keyword, before, after, line_end)
                yield Place(slot.start, slot.end, ((source.start, core),), write)
            else:
                yield Place(slot.start, slot.end)


def _slot(keyword: str, before: str, after: str, line_end: str, translations: Sequence[str]) -> str:
    """Return a msgstr: on one line where there is room, otherwise on lines of their own."""
    text = before + translations[0].strip() + after
    pieces = re.findall(r"[^\n]*\n|[^\n]+", text)
    if len(pieces) <= 1 and len(keyword) + len(text.translate(_ESCAPES)) + 3 <= _WIDTH:
        return f'{keyword} "{text.translate(_ESCAPES)}"'
    lines = [line for piece in pieces for line in _wrapped(piece.translate(_ESCAPES))]
    return line_end.join([f'{keyword} ""', *(f'"{line}"' for line in lines)])


def _wrapped(text: str) -> Iterator[str]:
    """Yield lines of an escaped text, cut after spaces."""
    line = ""
    for word in re.findall(r"[^ ]*(?: +|\Z)", text):
        if line and len(line) + len(word) > _WIDTH - 2:
            yield line
            line = ""
        line += word
    if line:
        yield line


def _entries(file: TextFile, budget: Budget) -> Iterator[_Entry]:
    entry = _Entry()
    string: _String | None = None  # that the next line may go on with
    for number, line in enumerate(file.lines(), start=1):
        budget.check()
        said = file.text[line.start : line.end]
        body = said.strip(" \t")
        keyword = _KEYWORD.match(said)
        quoted = _STRINGS.fullmatch(said, keyword.end() if keyword else 0)
        if not body:
            continue
        if entry.slots and (body[0] == "#" or (keyword and not keyword[1].startswith("msgstr"))):
            yield entry
            entry, string = _Entry(), None
        if body[0] == "#":
            string = None
            if body.startswith("#~"):
                entry.is_fuzzy = False  # the flags above are those of an entry that is obsolete
            elif body.startswith(("#,", "#=")):
                entry.is_fuzzy |= "fuzzy" in re.split(r"[\s,]+", body[2:])
        elif quoted is None:
            raise DocumentError("no catalogue of gettext: a line is neither a comment nor a string in quotes", number)
        elif keyword is None and string is not None:
            string.parts.append(_said(quoted))
            string.end = line.end
        elif keyword is None:
            raise DocumentError("no catalogue of gettext: a string follows nothing that it could belong to", number)
        else:
            string = _String(keyword[1], number, line.start + keyword.start(1), line.end, [_said(quoted)])
            _put(entry, string)
    if entry.slots:
        yield entry
    elif entry.msgid:
        raise DocumentError("no catalogue of gettext: an entry has no msgstr", entry.msgid.line)


def _said(quoted: re.Match[str]) -> str:
    return "".join(_ESCAPE.sub(_unescaped, each) for each in _STRING.findall(quoted[0]))


def _unescaped(escape: re.Match[str]) -> str:
    if escape[1]:
        return _SIGNS[escape[1]]
    codes = [int(byte[1], 16) if byte[1] else int(byte[2], 8) for byte in _BYTE.finditer(escape[2])]
    try:
        return bytes(codes).decode()
    except ValueError:  # not UTF-8, or no bytes
        return escape[0]


def _put(entry: _Entry, string: _String) -> None:
    """Make a string a part of an entry. DocumentError: it has no place there."""
    slots = entry.slots
    match string.keyword:
        case "domain" | "msgctxt" if not entry.msgid:
            pass
        case "msgid" if not entry.msgid:
            entry.msgid = string
        case "msgid_plural" if entry.msgid and not entry.msgid_plural:
            entry.msgid_plural = string
        case "msgstr" | "msgstr[0]" if entry.msgid and not slots:
            slots.append(string)
        case keyword if slots and slots[0].keyword == "msgstr[0]" and keyword == f"msgstr[{len(slots)}]":
            slots.append(string)
        case keyword:
            raise DocumentError(f"no catalogue of gettext: {keyword.partition('[')[0]} is out of place", string.line)
