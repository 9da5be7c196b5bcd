"""The teacher's outputs on disk: a file of JSON lines that only grows, so that a killed run loses little.

The first line says how the outputs were made. Each further line has the outputs for one source, in the order of the
text. Lines are written in batches, and each batch is flushed to the disk. A kill may leave half a line at the end of
the file; the next run cuts it off.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from translane_export.distill.errors import DistillError
from translane_export.train.errors import ResumeError
from translane_server.core.terminal import printable

_FORMAT = "translane-distill-outputs"
_VERSION = 1
_LONGEST_LINE = 1 << 24  # bytes; no output is nearly as long


@dataclass(frozen=True)
class Identity:
    """What outputs depend on, beside the text. ``teacher`` is a hash of the bundle's manifest."""

    teacher: str
    source_language: str
    target_language: str
    beam_size: int
    length_penalty: float
    nbest: int
    max_length: int


@dataclass(frozen=True)
class Output:
    """A translation, and how many pieces it has."""

    text: str
    pieces: int


@dataclass(frozen=True)
class Record:
    """What the teacher makes of one source.

    Attributes:
        line: number of the source's first line.
        key: hash of the source.
        pieces: how many the source has.
        outputs: best first; none where `left_out` says why.
        left_out: why the teacher has no translation; "" if it has.
    """

    line: int
    key: str
    pieces: int
    outputs: tuple[Output, ...]
    left_out: str = ""


class Journal:
    """The file of outputs.

    Args:
        path: the file.
        identity: of the run.
    """

    def __init__(self, path: Path, identity: Identity) -> None:
        self.path = path
        self._identity = identity

    def start(self) -> None:
        """Make the file, with its first line alone."""
        with self.path.open("xb") as file:
            self._write_header(file)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep other runs from writing to the file.

        Raises:
            ResumeError: another run writes to it.
        """
        with self.path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ResumeError(f"{self.path}: another run writes to it") from None
            yield

    def repair(self) -> None:
        """Cut off a last line that is not whole.

        Raises:
            ResumeError: the file is of another run.
        """
        with self.path.open("r+b") as file:
            end = file.seek(0, os.SEEK_END)
            whole = _end_of_last_line(file, end)
            if whole < end:
                file.truncate(whole)
                os.fsync(file.fileno())
            if not whole:  # not even the first line was written
                file.seek(0)
                self._write_header(file)
        self._check_header()

    def append(self, records: Iterable[Record]) -> None:
        """Write records; they are on the disk when this returns."""
        with self.path.open("ab") as file:
            _write(file, map(_encoded, records))

    def records(self) -> Iterator[Record]:
        """Read the records.

        Raises:
            DistillError: a line is no record.
        """
        with self.path.open("rb") as file:
            file.readline()
            for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), start=2):
                try:
                    yield _decoded(json.loads(line))
                except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                    raise DistillError(f"{self.path}:{number}: the line is no record of outputs") from None

    def _write_header(self, file: BinaryIO) -> None:
        _write(file, [{"format": _FORMAT, "version": _VERSION, **asdict(self._identity)}])

    def _check_header(self) -> None:
        with self.path.open("rb") as file:
            line = file.readline(_LONGEST_LINE)
        try:
            header = json.loads(line)
            is_known = header["format"] == _FORMAT and header["version"] == _VERSION
        except (ValueError, KeyError, TypeError, RecursionError):
            is_known = False
        if not is_known:
            raise ResumeError(f"{self.path}: its first line is not that of a file of outputs")
        for name, ours in asdict(self._identity).items():
            if (theirs := header.get(name)) != ours:
                raise ResumeError(
                    f"{self.path}: the run cannot be resumed with other settings"
                    f" ({name} was {printable(repr(theirs), 80)}, is {ours!r})"
                )


def _write(file: BinaryIO, lines: Iterable[dict[str, Any]]) -> None:
    file.write("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())
    file.flush()
    os.fsync(file.fileno())


def _encoded(record: Record) -> dict[str, Any]:
    values: dict[str, Any] = {"line": record.line, "source": record.key, "pieces": record.pieces}
    if record.left_out:
        return {**values, "left_out": record.left_out}
    return {**values, "outputs": [[output.text, output.pieces] for output in record.outputs]}


def _decoded(values: dict[str, Any]) -> Record:
    outputs = tuple(Output(text, pieces) for text, pieces in values.get("outputs", ()))
    left_out = values.get("left_out", "")
    record = Record(values["line"], values["source"], values["pieces"], outputs, left_out)
    numbers = (record.line, record.pieces, *(output.pieces for output in outputs))
    texts = (record.key, left_out, *(output.text for output in outputs))
    if not all(type(number) is int for number in numbers) or not all(isinstance(text, str) for text in texts):
        raise TypeError
    if bool(outputs) == bool(left_out):
        raise ValueError
    return record


def _end_of_last_line(file: BinaryIO, end: int) -> int:
    """Return the place after the last line break before `end`; 0 if there is none."""
    while end > 0:
        start = max(0, end - (1 << 16))
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
