"""The lengths of the sentences that are planned for: those of a profile, scaled to a mean, or those of a file."""

from __future__ import annotations

import random
import re
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from translane_plan.errors import PlanError
from translane_plan.profile import Length
from translane_server.files import read_regular

_MOST_BYTES = 1 << 22  # of a file of lengths
_MOST_LINES = 100_000
_LONGEST = 65536  # tokens


def read_lengths(path: Path) -> tuple[Length, ...]:
    """Read a file with the source and target tokens of a sentence on each line, such as ``12 15``.

    Raises:
        PlanError: the file cannot be read, or a line holds something else.
    """
    try:
        lines = read_regular(path, _MOST_BYTES).decode("utf-8", errors="replace").splitlines()
    except OSError as error:
        raise PlanError(f"--lengths: {path}: {error.strerror}") from None
    if not lines:
        raise PlanError(f"--lengths: {path}: it is empty")
    if len(lines) > _MOST_LINES:
        raise PlanError(f"--lengths: {path}: it has {len(lines):,} lines, and at most {_MOST_LINES:,} are read")
    return tuple(_length(line, f"{path}:{number}") for number, line in enumerate(lines, 1))


def scaled_to(lengths: Sequence[Length], mean: float) -> tuple[Length, ...]:
    """Return `lengths`, longer or shorter by the factor that makes `mean` of their mean source length."""
    factor = mean / statistics.fmean(length.source for length in lengths)
    return tuple(Length(_scaled(length.source, factor), _scaled(length.target, factor)) for length in lengths)


def drawn(lengths: Sequence[Length], seed: int) -> Iterator[Length]:
    """Draw lengths without end; the same seed draws the same ones."""
    pick = random.Random(seed)  # noqa: S311 nothing secret
    while True:
        yield pick.choice(lengths)


def _scaled(tokens: int, factor: float) -> int:
    return min(max(1, round(tokens * factor)), _LONGEST)


def _length(line: str, place: str) -> Length:
    found = re.fullmatch(r"\s*([0-9]{1,9})[\s,;]+([0-9]{1,9})\s*", line)
    if not found:
        raise PlanError(
            f"--lengths: {place}: two numbers are needed, source tokens and target tokens, not {line[:60]!r}"
        )
    length = Length(int(found[1]), int(found[2]))
    if not min(length) or max(length) > _LONGEST:
        raise PlanError(
            f"--lengths: {place}: a sentence has 1 to {_LONGEST} tokens, not {min(length)} and {max(length)}"
        )
    return length
