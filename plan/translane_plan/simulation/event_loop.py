"""A process that takes one message after the other, on one thread of Python: a front end, or a program of callers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from translane_plan.profile import LoopCosts
from translane_plan.simulation.processors import Niceness, Processors
from translane_plan.simulation.timeline import Event, Timeline


def nothing() -> None:
    """Nobody wants to know."""


@dataclass(slots=True)
class _Message:
    """A message, and what follows it: see `EventLoop.handle`."""

    seconds: float
    then: Event
    begins: Event


class EventLoop:
    """A process with an event loop.

    A message that finds the process asleep waits until the process wakes, and costs the work of waking. While messages
    wait, the process stays awake: so a message under load costs less than a lone one. The last part of the work on a
    message comes after its own message has gone, and delays only the messages that wait.

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
        self._wake = costs.wake
        self._of_loop = 1.0 - costs.threads  # of each second of work; other threads do the rest at the same time
        self._process = processors.process(Niceness.FRONT, 1.0 / self._of_loop)
        self._processors = processors
        self._after = costs.after
        self._delay = delay
        self._messages: deque[_Message] = deque()
        self._awake = False
        self.busy = 0.0

    def handle(self, work: float, then: Event, begins: Event = nothing) -> None:
        """Take a message after those that wait.

        Args:
            work: processor time of the message [seconds].
            then: called when the message has had its effect.
            begins: called when the work on the message begins.
        """
        if self._awake:
            self._messages.append(_Message(work * self._of_loop, then, begins))
            return
        self._awake = True
        wake = self._wake if self._process.is_cold else 0.0
        self._messages.append(_Message((work + wake) * self._of_loop, then, begins))
        if self._delay and self._processors.has_free_core:
            self._timeline.at(self._timeline.now + self._delay, self._next)
        else:
            self._next()

    def _next(self) -> None:
        message = self._messages.popleft()
        self.busy += message.seconds
        message.begins()
        after = message.seconds * self._after
        self._work(message.seconds - after, lambda: self._handled(message.then, after))

    def _handled(self, then: Event, after: float) -> None:
        if after:
            self._work(after, self._rest)
        else:
            self._rest()
        then()

    def _rest(self) -> None:
        """The work on a message is over."""
        if self._messages:
            self._next()
        else:
            self._awake = False

    def _work(self, seconds: float, then: Callable[[], None]) -> None:
        self._process.begin(seconds, then)
