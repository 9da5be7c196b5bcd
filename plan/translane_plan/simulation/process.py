"""A process that wants cores, and its job; `processors` has the rules by which it gets them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from translane_plan.simulation.processors import Processors


class Process:
    """A process, which works on one job at a time. `Processors.process` makes it.

    A process of several threads takes as many cores as there are, up to its own number, and gets on more slowly with
    fewer.
    """

    __slots__ = (
        "_at", "_event", "_order", "_owner", "_seconds", "cores", "deadline", "done", "since", "taken", "time",
        "weight",
    )  # fmt: skip

    def __init__(self, owner: Processors, weight: float, cores: float) -> None:
        self._owner = owner
        self.weight = weight
        self.cores = cores  # that it keeps busy
        self.taken = 0.0  # cores that it has now
        self.time = 0.0  # virtual time
        self.deadline = 0.0
        self.since = 0.0  # when it got its cores
        self.done = 0.0  # seconds of its job that are done
        self._seconds = 0.0  # of its job
        self._event: Callable[[], None] | None = None  # of its job; None while it sleeps
        self._at = 0.0  # until when `done` and `time` count
        self._order = 0  # of its newest end: older ones count no more

    def begin(self, seconds: float, event: Callable[[], None]) -> None:
        """Begin a job of `seconds` of work on all cores of the process; `event` is called when the job is done."""
        assert self._event is None, "a process works on one job at a time"
        self._event, self._seconds, self.done = event, seconds, 0.0
        self._owner.begun(self)

    def progress(self) -> float:
        """The seconds of the job that are done."""
        self.settle(self._owner.now)
        return self.done

    def shorten(self, seconds: float) -> None:
        """Let the job end after `seconds` of work, which is less than it was to take."""
        self._seconds = seconds
        self._owner.changed(self)

    @property
    def is_cold(self) -> bool:
        """Whether a core has slept since this process worked last: a wake now has a core to wake, and its caches."""
        return self._owner.has_free_core or self._owner.slept_until > self._at

    # For `Processors` alone.

    @property
    def wants_to_work(self) -> bool:
        return self._event is not None

    def settle(self, now: float) -> None:
        """Count the work until `now`."""
        worked = (now - self._at) * self.taken
        if worked:
            self.done += worked / self.cores
            self.time += worked / self.weight
        self._at = now

    def ends_at(self, order: int) -> float:
        """When the job ends with the cores that the process has. `order` is the number of this end."""
        self._order = order
        return self._at + max(0.0, self._seconds - self.done) * self.cores / self.taken if self.taken else math.inf

    def is_newest(self, order: int) -> bool:
        return order == self._order

    def forget_end(self) -> None:
        """The process has no core, so its job does not end."""
        self._order = 0

    def ended(self) -> Callable[[], None]:
        """The job is done. Return its event."""
        event = self._event
        assert event
        self.done, self._event, self._order = self._seconds, None, 0
        return event
