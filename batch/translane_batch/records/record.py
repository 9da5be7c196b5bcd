"""What all kinds of files have in common: blocks of records, and an output that takes the blocks with their answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from translane_batch.answers import Answer

MOST_RECORDS = 1024
"""Records of a block."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a file.

    Attributes:
        source: the text to translate; "" if there is nothing to translate.
        problem: why the text cannot be read; "" if it can.
    """

    source: str
    problem: str = ""


BLANK_RECORD = Record("")


@dataclass(frozen=True, slots=True)
class Block:
    """Records of a file, one after the other.

    Attributes:
        first: number of the first record, from 1.
        records: the records.
        content: what the output needs of them.
    """

    first: int
    records: Sequence[Record]
    content: Any


class Output(Protocol):
    """Where the records of a file go with their answers, in order."""

    def write(self, block: Block, answers: Sequence[Answer]) -> None:
        """Write a block. There is one answer for each record."""


class RecordFiles(Protocol):
    """A kind of file."""

    def blocks(self, path: Path, *, whole: bool) -> Iterator[Block]:
        """Yield the records of a file.

        Args:
            path: the file.
            whole: whether the blocks get what the output needs.

        Raises:
            CorpusError: the file cannot be read, or its first record is not what the settings say.
        """

    def output(self, path: Path, file: BinaryIO) -> AbstractContextManager[Output]:
        """Write to `file` what belongs to the records of the file at `path`."""

    def size(self, path: Path, stored: int) -> int:
        """Return about how many bytes of text the file at `path`, of `stored` bytes, has."""


def record_of(text: str) -> Record:
    """Return the record of a text. White space alone is nothing to translate."""
    return Record(text) if text.strip() else BLANK_RECORD
