"""The text of a file, how it is encoded, and what is wrong with it.

Only encodings whose time is in proportion to the length are here. Python has others, such as `idna` and `punycode`,
with which a small file takes hours.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple


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
            return text.encode(self.encoding)
        except UnicodeEncodeError as error:
            character = f"U+{ord(error.object[error.start]):04X}"
            problem = f"the file's encoding {self.encoding.upper()} has no {character}, which the translation needs"
            raise DocumentError(problem, line) from None


def decode(content: bytes, declared: re.Pattern[bytes] | None = None) -> TextFile:
    """Return the text of a file: UTF-8, unless a byte order mark or the file says otherwise.

    The first group of `declared` is the name of the encoding at the start of a file.

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
    return TextFile(text, encoding, mark)


def _line_of(body: bytes, place: int, encoding: str) -> int:
    """Return the number of the line with a byte."""
    return body[:place].decode(encoding, "replace").count("\n") + 1
