"""Which rate to try next, in search of the highest one that a server keeps."""

from __future__ import annotations

import math

_STEP = 1.5
"""Factor between rates while only one side of the answer is known."""
_PRECISION = 1.04
"""Of the answer: the rate that fails over the one that is kept."""


class RateSearch:
    """Brackets the highest rate that is kept between one that is and one that is not, then bisects.

    Rates are compared by their ratio: the middle of two is their geometric mean. A rate fails when it has failed twice
    in a row: a machine may stall for reasons of its own.

    Args:
        start: the first rate to try.
        trials: most trials, those of the same rate counted too.
    """

    def __init__(self, start: float, trials: int) -> None:
        self._start = start
        self._trials = trials
        self._again: float | None = None
        self.kept: float | None = None
        """The highest rate so far that was kept."""
        self.failed = math.inf
        """The lowest rate so far that was not."""
        self.lowest = start
        """The lowest rate that was tried, or is to be tried first."""

    def next_rate(self) -> float | None:
        """The next rate to try; None where the answer is precise enough or the trials are used up."""
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
        """The outcome of a trial."""
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
