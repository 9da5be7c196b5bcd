"""Parallel text: a TSV file, plain or gzipped, read into sentence pairs."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal, cast

from translane_export.core.errors import ExportError
from translane_export.train.errors import DataError

BadLines = Literal["refuse", "skip"]

_LISTED_PROBLEMS = 5


@dataclass(frozen=True)
class Columns:
    """Which columns of the TSV hold the two sides, counted from 0. Without a target, a line is its source alone."""

    source: int = 0
    target: int | None = 1


@dataclass(frozen=True)
class SentencePair:
    """One line of parallel text; the target is empty where only sources are read."""

    source: str
    target: str


@dataclass(frozen=True)
class ParallelText:
    """The usable pairs of a file, in file order, and what was wrong with the others."""

    path: Path
    pairs: tuple[SentencePair, ...]
    skipped: int
    problems: tuple[str, ...]
    """The first few skipped lines, each as ``file:line: reason``."""
    digest: str
    """SHA-256 over the pairs and their order."""

    def sides(self) -> tuple[list[str], list[str]]:
        """Return all sources and all targets."""
        return [pair.source for pair in self.pairs], [pair.target for pair in self.pairs]

    def summary(self) -> str:
        """Return a line for people: how many pairs, how many lines skipped, and the first of these."""
        text = f"{self.path}: {len(self.pairs):,} pairs"
        if self.skipped:
            rest = self.skipped - len(self.problems)
            listed = "".join(f"\n  {problem}" for problem in self.problems)
            text += f", {self.skipped:,} bad lines skipped:{listed}" + (f"\n  and {rest:,} more" if rest else "")
        return text


def read_parallel_text(path: Path, columns: Columns, bad_lines: BadLines, most: int | None = None) -> ParallelText:
    """Read the sentence pairs of the file, or of its first `most` lines: see `read_lines`.

    Raises DataError for lines none of which is usable, too.
    """
    pairs: list[SentencePair] = []
    problems: list[str] = []
    skipped = 0
    digest = hashlib.sha256()
    for number, found in islice(read_lines(path, columns, bad_lines), most):
        if isinstance(found, SentencePair):
            pairs.append(found)
            digest.update(f"{found.source}\t{found.target}\n".encode())
            continue
        skipped += 1
        if len(problems) < _LISTED_PROBLEMS:
            problems.append(f"{path}:{number}: {found}")
    if not pairs:
        first = f"; the first of {skipped:,} bad lines is {problems[0]}" if problems else ""
        raise DataError(f"{path}: no usable sentence pair{first}")
    return ParallelText(path, tuple(pairs), skipped, tuple(problems), digest.hexdigest())


def read_pairs(path: Path, flag: str, most: int | None = None) -> tuple[SentencePair, ...]:
    """Return the first pairs of the file that a command's `flag` names, or all of them. Raises ExportError."""
    try:
        return read_parallel_text(path, Columns(), "refuse", most).pairs
    except DataError as error:
        raise ExportError(f"{flag} {error}") from None


def read_lines(path: Path, columns: Columns, bad_lines: BadLines) -> Iterator[tuple[int, SentencePair | str]]:
    """Yield the number of each line, from 1, and its pair, or what is wrong with it.

    White space around a side is dropped. A line is bad when it has too few columns, an empty side or invalid UTF-8. The
    file is not held in memory.

    Raises:
        DataError: the file is missing, or not what its name says; or, with `bad_lines` "refuse", the first bad line.
    """
    for number, line in enumerate(_lines(path), start=1):
        found = _parse(line, columns)
        if isinstance(found, str) and bad_lines == "refuse":
            raise DataError(f"{path}:{number}: {found}")
        yield number, found


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            # Bytes split at \n alone: str.splitlines would also split at U+2028 and the like, inside a sentence.
            yield from cast(BinaryIO, file)
    except FileNotFoundError as error:
        raise DataError(f"{path}: the file is missing") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error


def _parse(line: bytes, columns: Columns) -> SentencePair | str:
    """Return the pair of a line, or what is wrong with the line."""
    try:
        fields = line.decode("utf-8").rstrip("\r\n").split("\t")
    except UnicodeDecodeError as error:
        return f"invalid UTF-8 at byte {error.start + 1}"
    needed = max(columns.source, columns.target or 0) + 1
    if len(fields) < needed:
        return f"{len(fields)} column{'s' * (len(fields) != 1)}, at least {needed} needed"
    target = "" if columns.target is None else fields[columns.target].strip()
    pair = SentencePair(fields[columns.source].strip(), target)
    if not pair.source:
        return f"the source side (column {columns.source}) is empty"
    if not pair.target and columns.target is not None:
        return f"the target side (column {columns.target}) is empty"
    return pair
