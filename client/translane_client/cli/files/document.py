"""Documents: files that are read whole, and changed in some places."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from translane.results import Translation
from translane_client.cli.files.part import Part
from translane_client.cli.text_files import FileError

LARGEST_DOCUMENT = 64 << 20
"""Bytes of the largest document, because a document is read into memory."""

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


@dataclass(frozen=True, slots=True)
class Span:
    """A line of a document, without its end."""

    start: int
    """Index of the first character in the document's text."""
    end: int
    """Index after the last character."""


@dataclass(frozen=True, slots=True)
class Document:
    """A file's text, and how the text is encoded."""

    name: str
    text: str
    encoding: str
    mark: bytes = b""
    """The byte order mark, which is no part of the text."""

    @property
    def line_end(self) -> str:
        """The end of the first line."""
        end = re.search(r"\r\n|\r|\n", self.text)
        return end[0] if end else "\n"

    @property
    def lines(self) -> list[Span]:
        """The lines of the text."""
        found = re.finditer(r"([^\r\n]*)(?:\r\n|\r|\n|\Z)", self.text)
        return [Span(line.start(), line.end(1)) for line in found]


@dataclass(frozen=True, slots=True)
class Edit:
    """A place of a document that changes."""

    start: int
    """Index of the first character in the document's text."""
    end: int
    """Index after the last character."""
    texts: tuple[str, ...]
    """What is translated."""
    render: Callable[[Sequence[str]], str]
    """What takes the place, from one translation for each text. ValueError: a translation does not fit there."""


def read_document(file: BinaryIO, name: str, declared: re.Pattern[bytes] | None = None) -> Document:
    """The document in `file`: UTF-8, unless a byte order mark or the document says otherwise.

    Args:
        file: A file, open for reading.
        name: The file's name in errors.
        declared: A pattern whose first group is the name of the encoding in the beginning of a document.

    Raises:
        FileError: the file cannot be read, is too large, or is not in its encoding.
    """
    try:
        data = file.read(LARGEST_DOCUMENT + 1)
    except OSError as error:
        raise FileError(f"{name}: {error.strerror or error}") from error
    if len(data) > LARGEST_DOCUMENT:
        raise FileError(f"{name}: larger than {LARGEST_DOCUMENT >> 20} MiB, the most for a file of this kind")
    mark, encoding = next(((mark, encoding) for mark, encoding in _MARKS if data.startswith(mark)), (b"", "utf-8"))
    found = declared.search(data, 0, 1 << 16) if declared and not mark else None
    if found:
        encoding = found[1].decode("ascii", "replace")
    try:
        return Document(name, data[len(mark) :].decode(encoding), encoding, mark)
    except LookupError:
        raise FileError(f"{name}: the encoding {encoding!r} is unknown") from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, len(mark) + error.start) + 1
        raise FileError(f"{name}, line {line}: not valid {encoding.upper()}") from error


def parts_of(document: Document, edits: Iterable[Edit]) -> Iterator[Part]:
    """The parts of a document: each ends with an edit. What follows the last edit is a part without texts.

    Args:
        document: The document.
        edits: The places that change, in order and apart from each other.
    """
    text, encoding = document.text, document.encoding
    written, line = 0, 1
    mark = document.mark
    for edit in edits:
        before = text[written : edit.start]
        line += before.count("\n")
        raw = mark + text[written : edit.end].encode(encoding)
        yield Part(raw, line, edit.texts, _render(document, mark, before, edit, line))
        line += text.count("\n", edit.start, edit.end)
        written, mark = edit.end, b""
    rest = mark + text[written:].encode(encoding)
    if rest:
        yield Part(rest, line, (), lambda _: rest)


def _render(
    document: Document, mark: bytes, before: str, edit: Edit, line: int
) -> Callable[[Sequence[Translation]], bytes]:
    def render(translations: Sequence[Translation]) -> bytes:
        try:
            return mark + (before + edit.render([each.text for each in translations])).encode(document.encoding)
        except UnicodeEncodeError as error:
            character = error.object[error.start]
            problem = f"the file's encoding {document.encoding} has no {character!r}, which the translation needs"
        except ValueError as error:
            problem = str(error)
        raise FileError(f"{document.name}, line {line}: {problem}")

    return render
