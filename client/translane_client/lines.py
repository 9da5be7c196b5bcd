"""Files of texts, one on each line."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

LONGEST_LINE = 1 << 20
"""Bytes; no sentence is that long, and a file without line ends must not fill the memory."""


class FileError(Exception):
    """A file that cannot be read or written; `str()` is one sentence that names it."""


def texts_of(file: BinaryIO, name: str) -> Iterator[tuple[str, int]]:
    r"""Each line's text, and its length in bytes with the line end.

    Lines end with "\n" or "\r\n" and nothing else: "\x0b", "\x85" or U+2028 are part of a text. A byte order mark at
    the beginning of the file is left out.

    Raises:
        FileError: a line is not UTF-8 or too long, or reading fails; names the file and the line.
    """
    number = 0
    while True:
        number += 1
        try:
            line = file.readline(LONGEST_LINE + 1)
        except OSError as error:
            raise FileError(f"{name}, line {number}: {error.strerror or error}") from error
        size = len(line)
        if number == 1:
            line = line.removeprefix(BOM_UTF8)
        if not line:
            return
        if size > LONGEST_LINE:
            raise FileError(f"{name}, line {number}: longer than {LONGEST_LINE} bytes")
        try:
            text = line.removesuffix(b"\n").removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            raise FileError(f"{name}, line {number}: not valid UTF-8 (byte {error.start + 1} of the line)") from error
        yield text, size


class LineWriter:
    """Writes texts, one on each line, and counts them; opens its file with the first one."""

    def __init__(self, path: Path | None, stdout: BinaryIO | None) -> None:
        self.name = "standard output" if path is None else str(path)
        self.count = 0
        self._path = path
        self._file: BinaryIO | None = stdout if path is None else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._path is None:
            return
        if kind is None:
            self._open()  # a file without lines is a file nevertheless
        if self._file is not None:
            try:
                self._file.close()
            except OSError as problem:
                if kind is not None:  # which is this very failure, or more important
                    return
                raise FileError(f"{self.name}: {problem.strerror or problem}") from problem

    def write(self, text: str) -> None:
        r"""Writes one line; "\r" and "\n" inside the text become spaces.

        Raises:
            FileError: the file cannot be opened or written.
            BrokenPipeError: nobody reads any more.
        """
        line = text.replace("\r\n", " ").replace("\n", " ").replace("\r", " ") + "\n"
        file = self._open()
        try:
            file.write(line.encode())
            file.flush()  # each line: whoever reads the other end of a pipe sees it when it is done
        except BrokenPipeError:
            raise
        except OSError as error:
            raise FileError(f"{self.name}: {error.strerror or error}") from error
        self.count += 1

    def _open(self) -> BinaryIO:
        if self._file is None:
            if self._path is None:
                raise FileError(f"{self.name} is closed")
            try:
                self._file = self._path.open("wb")
            except OSError as error:
                raise FileError(f"{self.name}: {error.strerror or error}") from error
        return self._file
