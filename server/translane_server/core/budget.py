"""The time that the work on a request may take, and its end when nobody waits for it any more."""

from __future__ import annotations

import math
import time
from collections.abc import Callable


class OverBudgetError(Exception):
    """The work takes longer than it may."""


class WorkEndedError(Exception):
    """Nobody waits for the work any more: the caller has gone, or the server ends."""


class Budget:
    """How long work may go on. The work calls `check` between its pieces; another thread may call `end`.

    Processor time of the working thread counts, not time on the clock [seconds]. So whether a request is refused does
    not depend on what else the machine does.
    """

    def __init__(self, seconds: float = math.inf, clock: Callable[[], float] = time.thread_time) -> None:
        self.seconds = seconds
        self._clock = clock
        self._latest: float | None = None  # no limit
        self._ended = False

    def start(self) -> None:
        """Count from now on, on the calling thread."""
        if self.seconds < math.inf:
            self._latest = self._clock() + self.seconds

    def end(self) -> None:
        """Make the next `check` end the work."""
        self._ended = True

    def check(self) -> None:
        """Raise an error if the work must end.

        Raises:
            OverBudgetError: the work has taken more than `seconds`.
            WorkEndedError: `end` was called.
        """
        if self._ended:
            raise WorkEndedError
        if self._latest is not None and self._clock() > self._latest:
            raise OverBudgetError


# For little work, which ends before anybody could end it.
UNLIMITED = Budget()
