"""Groups sources for the encoder. A run takes sources of similar lengths, so that little of the run is padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# The output of a run begins at a multiple of this [tokens]. So there are few different starts, and later runs can use
# the bindings of earlier runs.
_ALIGNMENT = 128


@dataclass(frozen=True, slots=True)
class Group:
    """One run of the encoder."""

    numbers: list[int]  # of the sources in the run
    longest: int  # the length that the sources are padded to [tokens]
    start: int  # where the run's output begins [tokens]

    @property
    def end(self) -> int:
        """Where the run's output ends [tokens]."""
        return self.start + len(self.numbers) * self.longest


def group_sources(lengths: Sequence[int], capacity: int, run_cost: int) -> list[Group]:
    """Group the first sources, as many as fit into `capacity` padded tokens in all runs together. None is longer.

    So many tokens of padding as `run_cost` cost as much as one more run.
    """
    low, high = 1, len(lengths)
    middle = high
    while low < high:  # the largest number that fits
        if _group(lengths[:middle], run_cost)[-1].end <= capacity:
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return _group(lengths[:low], run_cost)


def _group(lengths: Sequence[int], run_cost: int) -> list[Group]:
    groups: list[Group] = []
    numbers: list[int] = []
    longest = padding = start = 0
    for number in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        padding += longest - lengths[number]
        if padding > run_cost and numbers:
            groups.append(Group(sorted(numbers), longest, start))
            start = -(-groups[-1].end // _ALIGNMENT) * _ALIGNMENT
            numbers = []
        if not numbers:
            longest, padding = lengths[number], 0
        numbers.append(number)
    return [*groups, Group(sorted(numbers), longest, start)]
