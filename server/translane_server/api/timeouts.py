"""Time limits of many items at the cost of one timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


class Timeouts(Generic[_Item]):
    """Items that all have the same time limit, so that the item that started first ends first.

    Args:
        seconds: the time limit.
        expired: is called with an item whose time is over. The item is removed before. Items are hashable.
    """

    def __init__(self, seconds: float, expired: Callable[[_Item], None]) -> None:
        self._seconds = seconds
        self._expired = expired
        self._ends: dict[_Item, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._ends)

    def start(self, item: _Item) -> None:
        """Begin the time of `item`."""
        loop = asyncio.get_running_loop()
        end = self._ends[item] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_at(end, self._expire)

    def stop(self, item: _Item) -> None:
        """Forget `item`, if it is still known."""
        self._ends.pop(item, None)

    def pop_oldest(self, age: float) -> _Item | None:
        """Remove the item that started first, and return it; None if no item started at least `age` seconds ago."""
        for item, end in self._ends.items():
            if end - self._seconds + age <= asyncio.get_running_loop().time():
                del self._ends[item]
                return item
            break
        return None

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._ends:
            item, end = next(iter(self._ends.items()))
            if end > loop.time():
                self._timer = loop.call_at(end, self._expire)
                return
            del self._ends[item]
            self._expired(item)
