"""Files of texts: each line is one text."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

LONGEST_LINE = 1 << 20
"""Bytes of the longest line. No text is longer, and a file without line ends must not fill the memory."""


class CommandError(Exception):
    """A command cannot go on; `str()` is one sentence that says where, and how much was written."""


class FileError(CommandError):
    """A file cannot be read or written; `str()` is one sentence that names the file."""


def opened(path: Path) -> BinaryIO:
    """The file at `path`, open for reading. FileError: the file cannot be opened."""
    try:
        return path.open("rb")
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file."""

    start: bytes
    """The byte order mark, where there is one."""
    text: str
    end: bytes
    r"""The end of the line: "\n", "\r\n", or nothing in the last line."""

    @property
    def raw(self) -> bytes:
        """The line as it is in the file."""
        return self.start + self.text.encode() + self.end


def lines_of(file: BinaryIO, name: str) -> Iterator[Line]:
    r"""The lines of a file.

    A line ends with "\n" or "\r\n" and nothing else: "\x0b", "\x85" or U+2028 are part of a text. A byte order mark at
    the beginning of the file is no part of a text.

    Raises:
        FileError: a line is not UTF-8 or too long, or reading fails; the message names the file and the line.
    """
    number = 0
    while True:
        number += 1
        try:
            raw = file.readline(LONGEST_LINE + 1)
        except OSError as error:
            raise FileError(f"{name}, line {number}: {error.strerror or error}") from error
        start = BOM_UTF8 if number == 1 and raw.startswith(BOM_UTF8) else b""
        line = raw.removeprefix(start)
        if not line:
            return
        if len(raw) > LONGEST_LINE:
            raise FileError(f"{name}, line {number}: longer than {LONGEST_LINE} bytes")
        body = line.removesuffix(b"\n").removesuffix(b"\r")
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            raise FileError(f"{name}, line {number}: not valid UTF-8 (byte {error.start + 1} of the line)") from error
        yield Line(start, text, line[len(body) :])


def texts_of(file: BinaryIO, name: str) -> Iterator[tuple[str, int]]:
    """Each line's text, and the line's length in bytes with its end. Raises as `lines_of` does."""
    for line in lines_of(file, name):
        yield line.text, len(line.raw)


def on_a_line(text: str) -> str:
    """`text` with a space in place of each line break."""
    return text.replace("\r\n", " ").replace("\n", " ").replace("\r", " ")


class LineWriter:
    """Writes texts, one on each line, and counts the lines. The first line opens the file.

    Args:
        path: The file to write. None: `stdout`.
        stdout: Standard output.
        keep_breaks: Whether a text keeps its line breaks; otherwise each becomes a space.
    """

    def __init__(self, path: Path | None, stdout: BinaryIO | None, *, keep_breaks: bool = False) -> None:
        self.name = "standard output" if path is None else str(path)
        self.count = 0
        self._keep_breaks = keep_breaks
        self._path = path
        self._file: BinaryIO | None = stdout if path is None else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._path is None:
            return
        if kind is None:
            self._open()  # an output without lines is a file nevertheless
        if self._file is not None:
            try:
                self._file.close()
            except OSError as problem:
                if kind is None:  # else the error under way is this same failure, or a more important one
                    raise FileError(f"{self.name}: {problem.strerror or problem}") from problem

    def write(self, text: str) -> None:
        """Writes one line.

        Raises:
            FileError: the file cannot be opened or written.
            BrokenPipeError: nobody reads the output any more.
        """
        self._put(self._on_a_line(text) + "\n")
        self.count += 1

    def write_parts(self, parts: Iterable[str]) -> None:
        """Writes a line as its parts arrive. One that breaks off is ended, and does not count. Raises as `write`."""
        from translane.errors import TranslaneError

        begun = after_return = False
        try:
            for part in parts:
                if after_return and not self._keep_breaks:
                    part = part.removeprefix("\n")
                self._put(self._on_a_line(part))
                begun, after_return = True, part.endswith("\r")
        except TranslaneError:
            if begun:
                self._put("\n")
            raise
        self._put("\n")
        self.count += 1

    def _on_a_line(self, text: str) -> str:
        return text if self._keep_breaks else on_a_line(text)

    def _put(self, text: str) -> None:
        file = self._open()
        try:
            file.write(text.encode())
            file.flush()  # the reader of a pipe gets each text as soon as it is written
        except BrokenPipeError:
            raise
        except OSError as error:
            raise FileError(f"{self.name}: {error.strerror or error}") from error

    def _open(self) -> BinaryIO:
        if self._file is None:
            if self._path is None:
                raise FileError(f"{self.name} is closed")
            try:
                self._file = self._path.open("wb")
            except OSError as error:
                raise FileError(f"{self.name}: {error.strerror or error}") from error
        return self._file
