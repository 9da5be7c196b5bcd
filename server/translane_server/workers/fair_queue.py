"""The order in which accepted sentences wait: fair between callers.

Start-time fair queueing (Goyal, Vin and Cheng 1996, https://doi.org/10.1145/248156.248171): each caller has a virtual
time, which advances by the cost of each sentence that leaves the queue. The caller with the least virtual time is next.
So each caller gets an equal share of the work, however many sentences it has waiting. A sentence that takes more work
than was expected is charged for the rest when it ends.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections import Counter
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Generic, TypeVar

Item = TypeVar("Item")

_place = attrgetter("place")

# Fewer callers who have gone are not worth a pass over all of them.
_FEW = 64


@dataclass(eq=False, slots=True)
class Entry(Generic[Item]):
    """An item in the queue. `FairQueue.remove` takes it."""

    item: Item
    cost: float
    line: _Line[Item]
    place: tuple[int, int]  # the order in which the entries of a line leave: (-priority, arrival)
    is_waiting: bool = True


@dataclass(eq=False, slots=True)
class _Line(Generic[Item]):
    """The entries of one caller in one level, and the caller's virtual time there."""

    caller: str
    level: int
    # the order in which the lines of a level have their turns: (virtual time, arrival of the first entry)
    place: tuple[float, int]
    entries: list[Entry[Item]] = field(default_factory=list)  # by their places, the next one first


class _Level(Generic[Item]):
    """The callers with entries of one level."""

    __slots__ = ("_finished", "_most_finished", "by_caller", "lines", "virtual_time")

    def __init__(self) -> None:
        self.virtual_time = 0.0
        self.by_caller: dict[str, _Line[Item]] = {}
        self.lines: list[_Line[Item]] = []  # by their places, the next one first
        self._finished: dict[str, float] = {}  # virtual times of callers of whom nothing waits now
        self._most_finished = _FEW

    @property
    def first(self) -> Entry[Item]:
        """The next entry."""
        return self.lines[0].entries[0]

    def open(self, caller: str, level: int, arrival: int) -> _Line[Item]:
        """Make the line of a caller who comes, or comes back."""
        line = self.by_caller[caller] = _Line(caller, level, (self._take_start(caller), arrival))
        insort(self.lines, line, key=_place)
        return line

    def charge(self, caller: str, cost: float) -> None:
        """Let `caller` pay for work that it has got."""
        if line := self.by_caller.get(caller):
            del self.lines[bisect_left(self.lines, line.place, key=_place)]
            line.place = line.place[0] + cost, line.place[1]
            insort(self.lines, line, key=_place)
        else:
            self._remember(caller, self._take_start(caller) + cost)

    def close(self, line: _Line[Item]) -> None:
        """Forget a line of which nothing waits, but not what its caller has used."""
        del self.lines[bisect_left(self.lines, line.place, key=_place)]
        del self.by_caller[line.caller]
        self._remember(line.caller, line.place[0])

    def _take_start(self, caller: str) -> float:
        """The virtual time of a caller of whom nothing waits, which is remembered no more.

        A caller gets no credit for the time in which nothing of it waited.
        """
        return max(self.virtual_time, self._finished.pop(caller, 0.0))

    def _remember(self, caller: str, start: float) -> None:
        self._finished[caller] = start
        if len(self._finished) > self._most_finished:
            now = self.virtual_time
            self._finished = {caller: start for caller, start in self._finished.items() if start > now}
            self._most_finished = 2 * len(self._finished) + _FEW


class FairQueue(Generic[Item]):
    """Sentences that wait: higher levels first, and within a level a fair share for each caller.

    Entries of one caller and level leave by priority, and equal priorities in order of arrival.
    """

    def __init__(self) -> None:
        self._arrivals = itertools.count()
        # Those with entries, and those that `first` has not seen empty yet: they know what their callers have used.
        self._levels: dict[int, _Level[Item]] = {}
        self.of_callers: Counter[str] = Counter()  # number of entries of each caller who has any
        self.size = 0

    def add(self, item: Item, caller: str, *, level: int = 0, priority: int = 0, cost: float = 1) -> Entry[Item]:
        """Add `item`, for which `caller` pays. `cost` is the work that it takes (> 0).

        Items of a higher level leave first, whoever they belong to. Priorities order items of one caller and level.
        """
        callers = self._levels.get(level)
        if callers is None:
            callers = self._levels[level] = _Level()
        arrival = next(self._arrivals)
        line = callers.by_caller.get(caller) or callers.open(caller, level, arrival)
        entry = Entry(item, cost, line, (-priority, arrival))
        insort(line.entries, entry, key=_place)
        self.size += 1
        self.of_callers[caller] += 1
        return entry

    @property
    def first(self) -> Item | None:
        """The next item; None if the queue is empty."""
        while self._levels:
            highest = max(self._levels)
            if self._levels[highest].lines:
                return self._levels[highest].first.item
            del self._levels[highest]
        return None

    def pop(self) -> Item:
        """Remove and return the next item. The queue must not be empty."""
        callers = self._levels[max(level for level, each in self._levels.items() if each.lines)]
        entry = callers.first
        callers.virtual_time = entry.line.place[0]
        callers.charge(entry.line.caller, entry.cost)
        self.remove(entry)
        return entry.item

    def charge(self, caller: str, level: int, cost: float) -> None:
        """Let a caller pay for more work than its items of a level were expected to take, the work beyond (≥ 0).

        This is of no use if nothing waits.
        """
        if callers := self._levels.get(level):
            callers.charge(caller, cost)

    def remove(self, entry: Entry[Item]) -> bool:
        """Remove an entry. Return whether it was still waiting."""
        if not entry.is_waiting:
            return False
        entry.is_waiting = False
        line = entry.line
        del line.entries[bisect_left(line.entries, entry.place, key=_place)]
        self.size -= 1
        self.of_callers[line.caller] -= 1
        if not self.of_callers[line.caller]:
            del self.of_callers[line.caller]
        if not line.entries:
            self._levels[line.level].close(line)
        return True
