"""The order in which sentences wait."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Item = TypeVar("Item")


class PriorityQueue(Generic[Item]):
    """A queue: higher priority first; equal priorities in order of arrival."""

    def __init__(self) -> None:
        self._arrivals = itertools.count()
        self._heap: list[tuple[int, int, Item]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Item]:
        """Iterate over the items in their order, without removing them."""
        return (item for _, _, item in sorted(self._heap))

    @property
    def first(self) -> Item | None:
        """The next item; None if the queue is empty."""
        return self._heap[0][2] if self._heap else None

    def add(self, item: Item, priority: int) -> None:
        """Add `item` behind all items of its priority."""
        heappush(self._heap, (-priority, next(self._arrivals), item))

    def pop(self) -> Item:
        """Remove and return the next item."""
        return heappop(self._heap)[2]

    def remove(self, unwanted: Callable[[Item], bool]) -> int:
        """Remove the items that are `unwanted`, and return their number."""
        kept = [entry for entry in self._heap if not unwanted(entry[2])]
        removed = len(self._heap) - len(kept)
        if removed:
            heapify(kept)
            self._heap = kept
        return removed

    def clear(self) -> None:
        """Remove all items."""
        self._heap = []
