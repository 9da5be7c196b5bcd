"""The time of a simulation, and what happens in it."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Protocol

Event = Callable[[], None]


class Clockwork(Protocol):
    """Something with events of its own, whose times may change until they come.

    Attributes:
        next_at: time of its next event; infinity without one.
    """

    next_at: float

    def advance(self, now: float) -> None:
        """Let time pass until `now`, which is not after `next_at`."""

    def fire(self) -> None:
        """Take the next event. Its time has come."""


class Timeline:
    """Runs events in the order of their times, and events of equal times in the order in which they were planned.

    Attributes:
        now: the present time [seconds].
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Event]] = []
        self._planned = 0
        self._clockworks: list[Clockwork] = []

    def add(self, clockwork: Clockwork) -> None:
        """Run the events of `clockwork`, too."""
        self._clockworks.append(clockwork)

    def at(self, time: float, event: Event) -> None:
        """Plan an event."""
        self._planned += 1
        heapq.heappush(self._events, (max(time, self.now), self._planned, event))

    def run(self, goes_on: Callable[[], bool]) -> None:
        """Run events as long as there are any, and `goes_on` says so."""
        while goes_on():
            first = self._events[0][0] if self._events else math.inf
            found: Clockwork | None = None
            for clockwork in self._clockworks:
                if clockwork.next_at < first:
                    first, found = clockwork.next_at, clockwork
            if first == math.inf:
                return
            self.now = first
            for clockwork in self._clockworks:
                clockwork.advance(first)
            if found:
                found.fire()
            else:
                heapq.heappop(self._events)[2]()
