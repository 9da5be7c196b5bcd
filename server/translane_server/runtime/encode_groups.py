"""Which sources the encoder takes in one run: similar lengths together, so that little of a run is padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Runs begin at few different places of the memory they write to, so that the bindings of earlier ones serve again.
_ALIGNMENT = 128


@dataclass(frozen=True, slots=True)
class Group:
    """One run of the encoder.

    Attributes:
        numbers: of the sources.
        longest: the length they are padded to.
        start: where the run's output begins [tokens].
    """

    numbers: list[int]
    longest: int
    start: int

    @property
    def end(self) -> int:
        """Where the run's output ends [tokens]."""
        return self.start + len(self.numbers) * self.longest


def group_sources(lengths: Sequence[int], capacity: int, run_cost: int) -> list[Group]:
    """Group the first of the sources of these lengths, as many as there is room for.

    Args:
        lengths: of the sources, none above `capacity`.
        capacity: how many padded tokens all runs may write.
        run_cost: how many tokens of padding cost as much as another run.
    """
    count = len(lengths)
    while True:
        groups = _group(lengths[:count], run_cost)
        if count == 1 or groups[-1].end <= capacity:
            return groups
        count = (count + 1) // 2


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
