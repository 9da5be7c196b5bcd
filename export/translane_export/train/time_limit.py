"""The wall time of a run, and whether what still has to be done fits into it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_MARGIN = 1.2  # work may take so much longer than it ever has


class TimeLimit:
    """A clock that remembers the longest time of each kind of work.

    Args:
        limit: seconds that the run may take; 0 is no limit.
        clock: returns seconds; only differences count.
    """

    def __init__(self, limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self.clock = clock
        self._started = clock()
        self._longest: dict[str, float] = {}

    @property
    def seconds(self) -> float:
        """Wall time of the run so far, the earlier parts of a resumed run included."""
        return self.clock() - self._started

    def resume(self, seconds: float) -> None:
        """Count the `seconds` that earlier parts of the run took."""
        self._started -= seconds

    @contextmanager
    def measure(self, work: str) -> Iterator[None]:
        """Measure the work of the `with` block."""
        started = self.clock()
        yield
        self.expect(work, self.clock() - started)

    def expect(self, work: str, seconds: float) -> None:
        """Note that `work` takes `seconds`, where it has not taken longer before."""
        self._longest[work] = max(self._longest.get(work, 0.0), seconds)

    def longest(self, work: str) -> float:
        """The longest time [seconds] of this kind of work; 0 before the first one."""
        return self._longest.get(work, 0.0)

    def allows(self, *works: str) -> bool:
        """Whether one more of each of `works`, each as long as the longest so far, ends within the limit."""
        return not self.limit or self.seconds + _MARGIN * sum(map(self.longest, works)) < self.limit
