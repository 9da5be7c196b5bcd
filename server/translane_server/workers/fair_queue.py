"""The order in which accepted sentences wait: fair between callers.

Start-time fair queueing (Goyal, Vin and Cheng 1996, https://doi.org/10.1145/248156.248171): each caller has a virtual
time, which advances by the cost of each sentence that leaves the queue. The caller with the least virtual time is next.
So each caller gets an equal share of the work, however many sentences it has waiting. A sentence that takes more work
than was expected is charged for the rest when it ends.
"""

from __future__ import annotations

import itertools
from bisect import insort
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from typing import Generic, TypeVar

Item = TypeVar("Item")

# Fewer removed entries, or callers who have gone, are not worth a pass over all of them.
_FEW = 64


@dataclass(eq=False, slots=True)
class Entry(Generic[Item]):
    """An item in the queue. `FairQueue.remove` takes it."""

    item: Item
    cost: float
    line: _Line[Item]
    is_waiting: bool = True


@dataclass(eq=False, slots=True)
class _Line(Generic[Item]):
    """The entries of one caller in one level, and the caller's virtual time there."""

    caller: str
    level: int
    start: float
    size: int = 0
    entries: list[tuple[int, int, Entry[Item]]] = field(default_factory=list)  # a heap of (-priority, arrival, entry)


class _Level(Generic[Item]):
    """The callers with entries of one level."""

    __slots__ = ("_finished", "_most_finished", "heap", "lines", "virtual_time")

    def __init__(self) -> None:
        self.virtual_time = 0.0
        self.lines: dict[str, _Line[Item]] = {}
        # (start of the line, arrival, line). The start may be out of date, and then too low.
        self.heap: list[tuple[float, int, _Line[Item]]] = []
        self._finished: dict[str, float] = {}  # virtual times of callers of whom nothing waits now
        self._most_finished = _FEW

    def start_of(self, caller: str) -> float:
        """The virtual time of a caller who comes, or comes back. Time in which nothing waited is no claim."""
        return max(self.virtual_time, self._finished.pop(caller, 0.0))

    def close(self, line: _Line[Item]) -> None:
        """Forget a line of which nothing waits, but not what its caller has used."""
        del self.lines[line.caller]
        self._remember(line.caller, line.start)

    def charge(self, caller: str, cost: float) -> None:
        """Let `caller` pay for work that it has got."""
        if line := self.lines.get(caller):
            line.start += cost
        else:
            self._remember(caller, self.start_of(caller) + cost)

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
        self._levels: dict[int, _Level[Item]] = {}
        self._order: list[int] = []  # negated levels, so that the highest is first
        self.of_callers: dict[str, int] = {}  # number of entries of each caller who has any
        self.size = 0
        self._removed = 0  # removed entries that are still in a heap

    def add(self, item: Item, caller: str, *, level: int = 0, priority: int = 0, cost: float = 1) -> Entry[Item]:
        """Add `item`, for which `caller` pays. `cost` is the work that it takes (> 0).

        Items of a higher level leave first, whoever they belong to. Priorities order items of one caller and level.
        """
        group = self._levels.get(level)
        if group is None:
            group = self._levels[level] = _Level()
            insort(self._order, -level)
        line = group.lines.get(caller)
        arrival = next(self._arrivals)
        if line is None:
            line = group.lines[caller] = _Line(caller, level, group.start_of(caller))
            heappush(group.heap, (line.start, arrival, line))
        entry = Entry(item, cost, line)
        heappush(line.entries, (-priority, arrival, entry))
        line.size += 1
        self.size += 1
        self.of_callers[caller] = self.of_callers.get(caller, 0) + 1
        return entry

    @property
    def first(self) -> Item | None:
        """The next item; None if the queue is empty."""
        line = self._first_line()
        return line.entries[0][2].item if line else None

    def pop(self) -> Item:
        """Remove and return the next item. The queue must not be empty."""
        line = self._first_line()
        assert line, "the queue is not empty"
        _, _, entry = heappop(line.entries)
        group = self._levels[line.level]
        group.virtual_time = line.start
        line.start += entry.cost
        self._leave(entry)
        _, arrival, _ = heappop(group.heap)
        if line.size:
            heappush(group.heap, (line.start, arrival, line))
        else:
            self._close(line)
        return entry.item

    def charge(self, caller: str, level: int, cost: float) -> None:
        """Let a caller pay for more work than its items of a level were expected to take, the work beyond (≥ 0).

        This is of no use if nothing waits.
        """
        if group := self._levels.get(level):
            group.charge(caller, cost)

    def remove(self, entry: Entry[Item]) -> bool:
        """Remove an entry. Return whether it was still waiting."""
        if not entry.is_waiting:
            return False
        self._leave(entry)
        self._removed += 1  # it stays in its heap until it is first, or until the next pass
        if self._removed > self.size + _FEW:
            self._purge()
        return True

    def _leave(self, entry: Entry[Item]) -> None:
        entry.is_waiting = False
        entry.line.size -= 1
        self.size -= 1
        caller = entry.line.caller
        if left := self.of_callers[caller] - 1:
            self.of_callers[caller] = left
        else:
            del self.of_callers[caller]

    def _first_line(self) -> _Line[Item] | None:
        """The line whose first entry is next. Its first entry is waiting."""
        while self._order:
            group = self._levels[-self._order[0]]
            while group.heap:
                start, arrival, line = group.heap[0]
                if start < line.start:
                    heapreplace(group.heap, (line.start, arrival, line))
                    continue
                while line.entries and not line.entries[0][2].is_waiting:
                    heappop(line.entries)
                    self._removed -= 1
                if line.entries:
                    return line
                heappop(group.heap)
                self._close(line)
            del self._levels[-self._order.pop(0)]
        return None

    def _close(self, line: _Line[Item]) -> None:
        """Forget a line of which nothing waits. Its removed entries go with it."""
        self._removed -= len(line.entries)
        self._levels[line.level].close(line)

    def _purge(self) -> None:
        """Take the removed entries out of all heaps."""
        for group in self._levels.values():
            for line in list(group.lines.values()):
                if line.size:
                    line.entries = [each for each in line.entries if each[2].is_waiting]
                    heapify(line.entries)
                else:
                    group.close(line)
            group.heap = [each for each in group.heap if each[2].size]
            heapify(group.heap)
        self._removed = 0
