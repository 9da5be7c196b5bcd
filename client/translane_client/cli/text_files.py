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


def opened(path: Path) -> BinaryIO:
    """The file, to be read. FileError: that is not possible."""
    try:
        return path.open("rb")
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error


def pair_of(text: str, place: str) -> tuple[str, str]:
    """Source and target of a line that holds them with a tab between; FileError names `place` where it does not."""
    sides = text.split("\t")
    if len(sides) != 2:
        tabs = "no tab" if len(sides) == 1 else f"{len(sides) - 1} tabs"
        raise FileError(f"{place}: {tabs}, where one is needed between source and target")
    return sides[0], sides[1]


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
    """Writes texts, one on each line, and counts them; opens its file with the first one.

    Args:
        path: The file to write; None for `stdout`.
        stdout: Standard output, where that is written to.
        keep_breaks: Texts keep the line breaks inside them, which become spaces otherwise.
    """

    def __init__(self, path: Path | None, stdout: BinaryIO | None, *, keep_breaks: bool = False) -> None:
        self.name = "standard output" if path is None else str(path)
        self.count = 0
        self.begun = False
        """Whether a line has begun that is not ended."""
        self._keep_breaks = keep_breaks
        self._after_return = False
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
        """Writes one line.

        Raises:
            FileError: the file cannot be opened or written.
            BrokenPipeError: nobody reads any more.
        """
        self._put(self._on_a_line(text) + "\n")
        self.count += 1

    def write_part(self, text: str) -> None:
        """Writes the next part of a line, which is not empty; raises as `write` does."""
        after_return, self._after_return = self._after_return, text.endswith("\r")
        if after_return and not self._keep_breaks:
            text = text.removeprefix("\n")  # its space was written with the part before
        self._put(self._on_a_line(text))
        self.begun = True

    def end_line(self, *, whole: bool = True) -> None:
        """Ends the line whose parts were written, which counts if it is a whole one; raises as `write` does."""
        self._put("\n")
        self.count += whole
        self.begun = self._after_return = False

    def _on_a_line(self, text: str) -> str:
        if self._keep_breaks:
            return text
        return text.replace("\r\n", " ").replace("\n", " ").replace("\r", " ")

    def _put(self, text: str) -> None:
        file = self._open()
        try:
            file.write(text.encode())
            file.flush()  # whoever reads the other end of a pipe sees it when it is done
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
