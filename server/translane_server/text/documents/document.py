"""Documents: files that are read whole, and changed in some places; their text, and how it is encoded.

Only encodings whose time is in proportion to the length are here. Python has others, such as `idna` and `punycode`,
with which a small file takes hours.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, takewhile
from typing import NamedTuple

from translane.options import Format
from translane_server.core.budget import UNLIMITED, Budget


class DocumentError(ValueError):
    """A document cannot be read or written. The message has no text of the document.

    Attributes:
        line: where, the first line being 1; None if the fault is of the whole document.
    """

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem, line)
        self.line = line

    def __str__(self) -> str:
        problem = self.args[0]
        return problem if self.line is None else f"line {self.line}: {problem}"


# The names of encodings in files, in lower case with "-". Python knows all of them.
_ENCODINGS = frozenset(
    [
        *("utf-8", "utf8", "ascii", "us-ascii", "latin-1", "latin1", "koi8-r", "koi8-u"),
        *("gb18030", "gbk", "gb2312", "euc-cn", "big5", "shift-jis", "sjis", "euc-jp", "euc-kr"),
        *(f"iso-8859-{part}" for part in range(1, 17) if part != 12),
        *(f"{prefix}{page}" for prefix in ("windows-", "cp") for page in range(1250, 1259)),
    ]
)
# Files of these names have characters that Python's encodings of the same names lack.
_WIDER = {"gb2312": "gbk", "euc-cn": "gbk", "shift-jis": "cp932", "sjis": "cp932", "euc-kr": "cp949"}
_LATIN_1 = frozenset(["iso-8859-1", "latin-1", "latin1", "ascii", "us-ascii"])  # which browsers take for Windows-1252
_NOT_OF_WINDOWS = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_DECLARED_WITHIN = 1 << 16  # bytes at the start of a file in which it names its encoding

LINE_END = re.compile(r"\r\n|\r|\n")
_LINE = re.compile(r"[^\r\n]*(\r\n|\r|\n|\Z)")


class Span(NamedTuple):
    """A line of a text, without its end."""

    start: int  # where it starts in the text [characters]
    end: int  # where it ends


@dataclass(frozen=True, slots=True)
class TextFile:
    """The text of a file."""

    text: str
    encoding: str
    mark: bytes = b""  # the byte order mark, which is no part of the text
    errors: str = "strict"  # how `str.encode` treats a character that the encoding lacks

    @property
    def line_end(self) -> str:
        """The end of the first line."""
        found = LINE_END.search(self.text)
        return found[0] if found else "\n"

    def lines(self) -> Iterator[Span]:
        """The lines of the text. A text that ends with the end of a line has an empty one after it."""
        return (Span(line.start(), line.start(1)) for line in _LINE.finditer(self.text))

    def encode(self, text: str, line: int | None = None) -> bytes:
        """Return text in the encoding of the file.

        Raises:
            DocumentError: the encoding lacks a character. The error names `line`.
        """
        try:
            return text.encode(self.encoding, self.errors)
        except UnicodeEncodeError as error:
            character = f"U+{ord(error.object[error.start]):04X}"
            problem = f"the file's encoding {self.encoding.upper()} has no {character}, which the translation needs"
            raise DocumentError(problem, line) from None


def decode(
    content: bytes, declared: re.Pattern[bytes] | None = None, errors: str = "strict", *, is_html: bool = False
) -> TextFile:
    """Return the text of a file: UTF-8, unless a byte order mark or the file says otherwise.

    The first group of `declared` is the name of the encoding at the start of a file. For `errors`, see `TextFile`.

    Raises:
        DocumentError: the file is not in its encoding, or the encoding is none that is read.
    """
    mark, encoding = next(((mark, name) for mark, name in _MARKS if content.startswith(mark)), (b"", "utf-8"))
    found = declared.search(content, 0, _DECLARED_WITHIN) if declared and not mark else None
    if found:
        encoding = found[1].decode("ascii", "replace").lower().replace("_", "-")
        if encoding not in _ENCODINGS:
            problem = "the file's encoding is not read; UTF-8 is, UTF-16 with a byte order mark, ISO-8859, Windows-125x"
            raise DocumentError(f"{problem}, GB18030, GBK, GB2312, Big5, Shift_JIS, EUC-JP, EUC-KR, KOI8-R and KOI8-U")
        if is_html and encoding in _LATIN_1 and not content.startswith(b"<?xml"):  # only browsers read it so
            encoding = "latin-1" if _NOT_OF_WINDOWS.search(content) else "cp1252"
        encoding = _WIDER.get(encoding, encoding)
    body = content[len(mark) :]
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError as error:
        raise DocumentError(f"not valid {encoding.upper()}", _line_of(body, error.start, encoding)) from None
    again = text.encode(encoding)
    if again != body:  # two sequences of bytes are the same character
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(again, body, strict=False)))
        raise DocumentError(
            f"bytes that {encoding.upper()} writes in another way, so that the file would change",
            _line_of(body, same, encoding),
        )
    return TextFile(text, encoding, mark, errors)


def _line_of(body: bytes, place: int, encoding: str) -> int:
    """Return the number of the line with a byte."""
    return body[:place].decode(encoding, "replace").count("\n") + 1


MOST_TEXTS = 20_000
"""Texts of a document at most: as many as a megabyte of prose has sentences."""


@dataclass(frozen=True, slots=True)
class DocumentText:
    """One text to translate."""

    text: str
    format: Format  # what it is written in. All texts of a document have the same format
    line: int  # the line of the file where it begins, the first one being 1


class Document:
    """A file, and its texts to translate. It can be pickled."""

    texts: Sequence[DocumentText]  # n of them, in the order of the file

    def render(self, translations: Sequence[str], budget: Budget = UNLIMITED) -> bytes:
        """Return the file with n translations in place of the texts. The budget is checked between pieces of the work.

        Raises:
            DocumentError: the file's encoding lacks a character of a translation, or a translation breaks the file.
            OverBudgetError, WorkEndedError: see `Budget.check`.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Place:
    """A part of a file that is, or may be, written anew. A reader of the result finds the place again."""

    start: int  # where it starts in the file's text [characters]
    end: int  # where it ends
    # what is translated there: where each text begins in the file, and the text. Without texts, it stays
    texts: Sequence[tuple[int, str]] = ()
    # returns what takes the place, from one translation for each text, none of which is blank. It can be pickled
    write: Callable[[Sequence[str]], str] = "".join


# Yields all places of a file that can hold a translation, in order and apart from each other. They have texts where
# they lack a translation, or, if the second argument is true, where they have one, too.
ReadPlaces = Callable[[TextFile, bool, Budget], Iterator[Place]]


@dataclass(frozen=True)
class PlacesDocument(Document):
    """A document whose texts stand in places."""

    file: TextFile
    texts: Sequence[DocumentText]  # the texts of all places
    places: Sequence[Place]  # the places that have texts
    number: int  # how many places there are with those that stay
    read: ReadPlaces
    replace: bool  # whether translations that are there are replaced

    @classmethod
    def of(cls, read: ReadPlaces, form: Format, file: TextFile, replace: bool, budget: Budget) -> PlacesDocument:
        """Return the document in a file. Raises what `read` raises, and a DocumentError if it has too many texts."""
        number = 0
        places = []

        def found() -> Iterator[tuple[int, str]]:
            nonlocal number
            for place in read(file, replace, budget):
                number += 1
                if place.texts:
                    places.append(place)
                    yield from place.texts

        texts = texts_at(found(), file, form, budget)
        return cls(file, texts, places, number, read, replace)

    def render(self, translations: Sequence[str], budget: Budget = UNLIMITED) -> bytes:
        """See `Document`. A place stays as it is if one of its translations is blank."""
        assert len(translations) == len(self.texts)
        source = self.file.text
        pieces: list[tuple[str, int | None]] = []  # of the new text, with their lines: what stays, a place, and so on
        copied = number = 0
        for place in self.places:
            mine = translations[number : number + len(place.texts)]
            line = self.texts[number].line
            number += len(place.texts)
            written = place.write(mine) if all(map(str.strip, mine)) else source[place.start : place.end]
            pieces += [(source[copied : place.start], line), (written, line)]
            copied = place.end
        pieces.append((source[copied:], None))
        content = [self.file.encode(text, line) for text, line in pieces]
        ends = list(accumulate(len(text) for text, _ in pieces))
        self._check("".join(text for text, _ in pieces), list(pairwise(ends))[::2], budget)
        return b"".join([self.file.mark, *content])

    def _check(self, text: str, spans: Sequence[tuple[int, int]], budget: Budget) -> None:
        """Read the result once more, because a place that is not found again means that the file is broken."""
        number = found = 0
        try:
            for place in self.read(TextFile(text, self.file.encoding), self.replace, budget):
                number += 1
                found += found < len(spans) and spans[found] == (place.start, place.end)
        except DocumentError:
            number = -1
        if number != self.number or found < len(spans):
            first = sum(len(place.texts) for place in self.places[:found])
            line = self.texts[first].line if first < len(self.texts) else None
            raise DocumentError("the translation would break the file", line)


def texts_at(
    found: Iterable[tuple[int, str]], file: TextFile, form: Format, budget: Budget
) -> tuple[DocumentText, ...]:
    """Return the texts that begin at some places of a file. The budget is checked at each.

    Raises:
        DocumentError: they are too many.
    """
    starts = [0, *(match.end() for match in LINE_END.finditer(file.text))]
    texts: list[DocumentText] = []
    for place, text in found:
        budget.check()
        line = bisect_right(starts, place)
        if len(texts) == MOST_TEXTS:
            raise DocumentError(f"the document has more than {MOST_TEXTS} texts to translate; split it", line)
        texts.append(DocumentText(text, form, line))
    return tuple(texts)


def trimmed(text: str) -> tuple[str, str, str]:
    """Return the white space at the start, what is between, and the white space at the end."""
    core = text.strip()
    start = len(text) - len(text.lstrip())
    return text[:start], core, text[start + len(core) :]


def is_worth_translating(text: str) -> bool:
    """Whether the text has a letter or a digit."""
    return any(map(str.isalnum, text))


def on_a_line(text: str) -> str:
    """Return text without white space around it, and with a space in place of each end of a line."""
    return LINE_END.sub(" ", text).strip()
