"""The search for the highest rate that keeps a bound."""

from __future__ import annotations

import math

_STEP = 1.5
"""Factor between rates while no rate is known to be kept, or none to fail."""
_PRECISION = 1.04
"""The search ends where the lowest rate that fails is at most this times the highest rate kept."""


class RateSearch:
    """Finds a rate that is kept and a rate that fails, then bisects between the two.

    The middle of two rates is their geometric mean. A rate counts as failed after two failures in a row, because a
    machine may stall for reasons of its own.

    Args:
        start: The first rate to try.
        trials: Most trials; second trials of a rate count, too.
    """

    def __init__(self, start: float, trials: int) -> None:
        self._start = start
        self._trials = trials
        self._again: float | None = None
        self.kept: float | None = None
        """The highest rate so far that was kept; None where none was."""
        self.failed = math.inf
        """The lowest rate so far that failed; infinity where none did."""
        self.lowest = start
        """The lowest rate that was tried; at first the rate to begin with."""

    def next_rate(self) -> float | None:
        """The next rate to try; None where the result is precise enough or the trials are used up."""
        if not self._trials:
            return None
        if self._again is not None:
            return self._again
        if self.kept is None:
            return self._start if math.isinf(self.failed) else self.failed / _STEP**2
        if math.isinf(self.failed):
            return self.kept * _STEP
        return math.sqrt(self.kept * self.failed) if self.failed / self.kept > _PRECISION else None

    def tell(self, rate: float, *, is_kept: bool) -> None:
        """Takes the outcome of a trial."""
        self._trials -= 1
        self.lowest = min(rate, self.lowest)
        if is_kept:
            self.kept = max(rate, self.kept or 0.0)
        elif self._again is None:
            self._again = rate
            return
        else:
            self.failed = min(rate, self.failed)
        self._again = None
