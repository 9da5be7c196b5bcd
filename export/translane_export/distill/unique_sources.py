"""The different sources of a text, in the order in which each first occurs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from translane_export.train.data import BadLines, Columns, SentencePair, read_lines
from translane_export.train.errors import DataError

_DIGEST_BYTES = 16


@dataclass(frozen=True)
class UniqueSource:
    """A source text, the number of the first line that has it, and that line's target ("" where none is read)."""

    line: int
    text: str
    target: str

    @property
    def key(self) -> str:
        """A hash of the text, in hexadecimal digits."""
        return _digest(self.text).hex()


@dataclass(frozen=True)
class TextCounts:
    """What a text holds: its usable lines, their different sources, and the bad lines that are skipped."""

    lines: int
    sources: int
    bad_lines: int


@dataclass(frozen=True)
class Text:
    """A file of sources, which is read line by line each time. A pass keeps a digest of each different one."""

    path: Path
    columns: Columns
    bad_lines: BadLines

    def pairs(self) -> Iterator[tuple[int, SentencePair]]:
        """Return each usable line's number and pair.

        Raises:
            DataError: the file cannot be read; or, with `bad_lines` "refuse", a line is bad.
        """
        for line in read_lines(self.path, self.columns):
            if line.pair:
                yield line.number, line.pair
            elif self.bad_lines == "refuse":
                raise DataError(f"{self.path}:{line.number}: {line.problem}")

    def unique(self) -> Iterator[UniqueSource]:
        """Return the different sources. Raises DataError; see `pairs`."""
        seen: set[bytes] = set()
        for number, pair in self.pairs():
            digest = _digest(pair.source)
            if digest not in seen:
                seen.add(digest)
                yield UniqueSource(number, pair.source, pair.target)

    def count(self) -> TextCounts:
        """Read the whole text once.

        Raises:
            DataError: see `pairs`; or the text has no usable line.
        """
        lines = bad = 0
        seen: set[bytes] = set()
        for line in read_lines(self.path, self.columns):
            if line.pair:
                lines += 1
                seen.add(_digest(line.pair.source))
            elif self.bad_lines == "refuse":
                raise DataError(f"{self.path}:{line.number}: {line.problem}")
            else:
                bad += 1
        if not lines:
            raise DataError(f"{self.path}: no usable line")
        return TextCounts(lines, len(seen), bad)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()
