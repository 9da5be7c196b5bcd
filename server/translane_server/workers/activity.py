"""Which replicas of a model are at work, in memory that their processes share."""

from __future__ import annotations

import mmap
from typing import Final

_IDLE, _BUSY = 0, 1
_MOST_REPLICAS = 1024  # the largest value of the setting `replicas`


class SharedActivity:
    """Says of each replica whether it is at work. Processes that are forked later share it."""

    def __init__(self) -> None:
        self._states = mmap.mmap(-1, _MOST_REPLICAS)  # a byte of each replica

    def of(self, number: int) -> Activity:
        """The activity of the replica `number`."""
        return Activity(self._states, number)


class Activity:
    """Whether a replica is at work, and whether others are.

    A replica writes its own byte alone, so no lock is needed. What it reads of others may be a moment old.
    """

    def __init__(self, states: mmap.mmap, number: int) -> None:
        self._states: Final = states
        self._number = number

    def begin(self) -> None:
        """The replica has work."""
        self._states[self._number] = _BUSY

    def end(self) -> None:
        """The replica has no work, or has ended."""
        self._states[self._number] = _IDLE

    def is_alone(self) -> bool:
        """Whether no other replica is at work."""
        states = self._states[:]
        return states.count(_BUSY) <= states[self._number]
