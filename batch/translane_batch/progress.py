"""How far a run is, as a line now and then: what is done, how many in a second, and how long the rest takes."""

from __future__ import annotations

import time
from collections.abc import Callable

_SECONDS = 10.0  # between two lines


class Progress:
    """Counts what one step of a run has done.

    Args:
        what: the name of what is counted, such as "sources".
        log: takes lines for people.
        total: how many there are; None if this is not known.
        done: how many were done before.
        note: is added to each line.
        clock: monotonic clock [seconds].

    Attributes:
        added: how many were done since.
    """

    def __init__(
        self,
        what: str,
        log: Callable[[str], None],
        *,
        total: int | None = None,
        done: int = 0,
        note: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what, self._log, self._total, self._before, self._note = what, log, total, done, note
        self._clock = clock
        self._started = self._logged = clock()
        self.added = 0

    @property
    def seconds(self) -> float:
        """Time since the step began."""
        return self._clock() - self._started

    def add(self, number: int) -> None:
        """Count what is done, and write a line if the last one is long ago."""
        self.added += number
        now = self._clock()
        if now - self._logged < _SECONDS:
            return
        self._logged = now
        rate = self.added / (now - self._started)
        done = self._before + self.added
        of = "" if self._total is None else f" of {self._total:,}"
        left = f", {_interval((self._total - done) / rate)} left" if self._total is not None and rate else ""
        self._log(f"{done:,}{of} {self._what}, {rate:,.0f} a second{left}{self._note}")


def _interval(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
