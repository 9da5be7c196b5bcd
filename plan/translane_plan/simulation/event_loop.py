"""A process that takes one message after the other, on one thread of Python: a front end, or a program of callers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from translane_plan.profile import LoopCosts
from translane_plan.simulation.processors import Niceness, Processors
from translane_plan.simulation.timeline import Timeline


class EventLoop:
    """A process with an event loop.

    A message that finds the process asleep waits until the process wakes, and costs the work of waking. While messages
    wait, the process stays awake: so a message under load costs less than a lone one.

    Args:
        timeline: the time.
        processors: the cores that the process runs on.
        costs: what messages cost.
        delay: time until a sleeping process wakes [seconds].

    Attributes:
        busy: seconds of work of the event loop so far.
    """

    def __init__(self, timeline: Timeline, processors: Processors, costs: LoopCosts, delay: float) -> None:
        self._timeline = timeline
        self._processors = processors
        self._wake = costs.wake
        self._of_loop = 1.0 - costs.threads  # of each second of work; other threads do the rest at the same time
        self._delay = delay
        self._messages: deque[tuple[float, Callable[[], None]]] = deque()
        self._awake = False
        self.busy = 0.0

    def handle(self, work: float, then: Callable[[], None]) -> None:
        """Take a message of `work` seconds of processor time after those that wait, and call `then`."""
        if self._awake:
            self._messages.append((work, then))
            return
        self._awake = True
        self._messages.append((work + self._wake, then))
        if self._delay:
            self._timeline.at(self._timeline.now + self._delay, self._next)
        else:
            self._next()

    def _next(self) -> None:
        work, then = self._messages.popleft()
        seconds = work * self._of_loop
        self.busy += seconds
        self._processors.begin(Niceness.FRONT, seconds, 1.0 / self._of_loop, lambda: self._done(then))

    def _done(self, then: Callable[[], None]) -> None:
        if self._messages:
            self._next()
        else:
            self._awake = False
        then()
