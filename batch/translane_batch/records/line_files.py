"""Files with a record on each line, plain or gzipped. What a line holds is the business of a `LineForm`."""

from __future__ import annotations

import gzip
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from translane_batch.answers import Answer
from translane_batch.errors import CorpusError
from translane_batch.records.record import MOST_RECORDS, Block, Record
from translane_server.core.files import open_regular

LONGEST_LINE = 1 << 24
"""Bytes of the longest line. A file without line ends must not fill the memory."""

_BLOCK_BYTES = 1 << 20
_GAIN = 4  # about how many times as large text is without gzip
_LEVEL = 6  # of gzip
_TOO_LONG = Record("", f"it has more than {LONGEST_LINE} bytes")


class LineForm(Protocol):
    """What a line holds."""

    def record(self, line: bytes) -> Record:
        """Read a line, without its end."""

    def line(self, line: bytes, record: Record, answer: Answer) -> bytes:
        """Return the line of the output, without its end. A line that was too long is b""."""


class LineFiles:
    r"""Files of lines. A line ends with "\n" or "\r\n", and with nothing else; in the output with "\n"."""

    def __init__(self, form: LineForm) -> None:
        self._form = form

    def blocks(self, path: Path, *, whole: bool) -> Iterator[Block]:
        """See `RecordFiles`."""
        first, lines, records, size = 1, list[bytes](), list[Record](), 0
        for line in _lines_of(path):
            record = _TOO_LONG if line is None else self._form.record(line)
            if first == 1 and not records and record.problem:
                raise CorpusError(f"{path}, line 1: {record.problem}")
            records.append(record)
            lines.append((line or b"") if whole else b"")
            size += len(line or b"")
            if len(records) == MOST_RECORDS or size >= _BLOCK_BYTES:
                yield Block(first, records, lines)
                first, lines, records, size = first + len(records), [], [], 0
        if records:
            yield Block(first, records, lines)

    @contextmanager
    def output(self, path: Path, file: BinaryIO) -> Iterator[_LineOutput]:
        """See `RecordFiles`. The output is gzipped if the file is."""
        if not _is_gzipped(path):
            yield _LineOutput(self._form, file)
            return
        # Neither a name nor a time, so that equal outputs are equal files.
        with gzip.GzipFile("", "wb", _LEVEL, fileobj=file, mtime=0) as compressed:
            yield _LineOutput(self._form, cast(BinaryIO, compressed))

    def size(self, path: Path, stored: int) -> int:
        """See `RecordFiles`."""
        return stored * _GAIN if _is_gzipped(path) else stored


class _LineOutput:
    def __init__(self, form: LineForm, file: BinaryIO) -> None:
        self._form, self._file = form, file

    def write(self, block: Block, answers: Sequence[Answer]) -> None:
        each = zip(block.content, block.records, answers, strict=True)
        self._file.write(b"".join([self._form.line(line, record, answer) + b"\n" for line, record, answer in each]))


def _is_gzipped(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _lines_of(path: Path) -> Iterator[bytes | None]:
    """Yield the lines of a file without their ends; None for a line that is too long."""
    number = 0
    try:
        with ExitStack() as stack:
            file: BinaryIO = stack.enter_context(open_regular(path))
            if _is_gzipped(path):
                file = cast(BinaryIO, stack.enter_context(gzip.open(file, "rb")))
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE and not line.endswith(b"\n"):
                    while (rest := file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                        pass
                    yield None
                    continue
                line = line.removesuffix(b"\n").removesuffix(b"\r")
                yield line.removeprefix(BOM_UTF8) if number == 1 else line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CorpusError(f"{path}: the gzip data is broken after line {number} ({error})") from error
    except OSError as error:
        raise CorpusError(f"{path}: {error.strerror or error}") from error
