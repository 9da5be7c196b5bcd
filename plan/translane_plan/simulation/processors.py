"""The cores of a machine, and the processes that take turns on them.

Linux gives each process a virtual time: its work over its weight. The rules are those of EEVDF
(https://docs.kernel.org/scheduler/sched-eevdf.html), for processes that use all cores alike:

- A process that wakes gets a free core at once. It begins at the mean virtual time of all processes that want to work.
- If all cores are taken, a process with less virtual time than the mean may take a core. It takes the core of a process
  that is beyond the mean, or whose deadline is later. A deadline is one slice after the virtual time.
- No process loses its core before it has had a slice of time.
- The kernel looks only when a process wakes, sleeps, or at a tick of its clock. So a process that wakes often waits for
  the next tick, although its slice is much shorter.

The server starts its replicas with a niceness of 10, so that front ends go first. Where Linux groups processes by
sessions, the niceness counts only within a session, and a replica has a session of its own: so front ends and replicas
get equal parts (https://man7.org/linux/man-pages/man7/sched.7.html, autogroups). Within a container there are no such
groups.
"""

from __future__ import annotations

import heapq
import itertools
import math
from enum import IntEnum

from translane_plan.profile import Turns
from translane_plan.simulation.process import Process
from translane_plan.simulation.timeline import Timeline


class Niceness(IntEnum):
    """The place of a process's weight among the weights."""

    FRONT = 0
    REPLICA = 1


# Of the niceness 0 and 10, to the first one: `sched_prio_to_weight` of the kernel (kernel/sched/core.c).
WEIGHTS = (1.0, 110 / 1024)
EQUAL_WEIGHTS = (1.0, 1.0)

_LEAST = 1e-9  # cores: less is a rounding error


class Processors:
    """Cores, and the processes that take turns on them. Implements `timeline.Clockwork`.

    Args:
        timeline: the time.
        cores: cores of the machine.
        turns: how long processes keep a core.
        others: cores that other programs want all the time, at the niceness of front ends.
        weights: weight of each niceness.

    Attributes:
        used: core seconds that the jobs have taken.
        slept_until: the last time at which a core was free for a while.
    """

    def __init__(
        self,
        timeline: Timeline,
        cores: float,
        turns: Turns,
        others: float = 0.0,
        weights: tuple[float, float] = WEIGHTS,
    ) -> None:
        self._timeline = timeline
        self._weights = weights
        self._slice, self._tick = turns.slice, turns.tick
        self._free = float(cores)
        self._running: dict[Process, None] = {}  # the one that has had its cores longest is the first
        self._short: dict[Process, None] = {}  # processes that work on too few cores
        self._waiting: list[Process] = []
        self._ends: list[tuple[float, int, Process]] = []
        self._orders = itertools.count(1)
        self._times = self._weight = 0.0  # of all processes that want to work: weighted virtual times, and weights
        self._last = 0.0  # virtual time of the last process that has gone to sleep
        self._taken = 0.0  # cores of all processes
        self._at = 0.0
        self._ticks = 0  # at the last of which the kernel has looked
        self._ending: Process | None = None  # whose job has just ended
        self._woken = False  # whether a process has begun to wait since then
        self._freed = 0.0  # when a core became free
        self.slept_until = 0.0
        self.next_at = math.inf
        self.used = 0.0
        timeline.add(self)
        for part in itertools.chain([1.0] * int(others), [others % 1] if others % 1 else []):
            self.process(Niceness.FRONT, part).begin(math.inf, lambda: None)

    @property
    def now(self) -> float:
        """The present time [seconds]."""
        return self._timeline.now

    @property
    def has_free_core(self) -> bool:
        """Whether a process that wakes now finds a core asleep."""
        return self._free > _LEAST

    def process(self, niceness: Niceness, cores: float = 1.0) -> Process:
        """A process that sleeps, and keeps `cores` cores busy when it works."""
        return Process(self, self._weights[niceness], cores)

    def advance(self, now: float) -> None:
        passed = now - self._at
        if passed > 0:
            self._times += passed * self._taken
            self.used += passed * self._taken
            self._at = now

    def fire(self) -> None:
        if self._ends and self._ends[0][0] <= self._at:
            self._end(heapq.heappop(self._ends)[2])
        else:
            self._ticks = self._ticks_until_now()
            for runner in list(self._running):
                self._give_way(runner)
        self._plan()

    # For `Process` alone.

    def begun(self, process: Process) -> None:
        """A process has a job."""
        if process is self._ending:  # it has not slept
            self.changed(process)
            return
        process.settle(self._at)
        mean = self._mean()
        most = mean + self._slice / process.weight  # a process that was ahead loses no more than a slice for it
        process.time = min(max(process.time, mean), most)
        process.deadline = process.time + self._slice / process.weight
        self._times += process.weight * process.time
        self._weight += process.weight
        self._waiting.append(process)
        self._fill()
        if not process.taken:
            self._woken = True
            longest = next((runner for runner in self._running if runner is not self._ending), None)
            if longest:
                self._give_way(longest)
        self._plan()

    def changed(self, process: Process) -> None:
        """The job of a process ends at another time than before."""
        self._push(process)
        self._plan()

    # Who works.

    def _end(self, process: Process) -> None:
        process.settle(self._at)
        event = process.ended()
        self._ending, self._woken = process, False
        event()
        self._ending = None
        if not process.wants_to_work:
            self._times -= process.weight * process.time
            self._weight -= process.weight
            if self._running == {process: None} and not self._waiting:
                self._times = self._weight = 0.0  # and no rounding errors
                self._last = process.time
            self._take(process, process.taken)
            self._fill()
        elif self._woken:
            self._give_way(process)

    def _give_way(self, runner: Process) -> None:
        """Let the best of the processes that wait take the cores of `runner`, if the rules say so."""
        if not self._waiting or self._at - runner.since < self._slice - _LEAST:
            return
        runner.settle(self._at)
        if runner.time >= runner.deadline:
            runner.deadline = runner.time + self._slice / runner.weight
        waiter = min(self._waiting, key=self._place)
        if self._place(waiter) > self._place(runner):
            return
        cores = min(waiter.cores, runner.taken)
        self._take(runner, cores)
        if not runner.taken:
            self._waiting.append(runner)
        self._waiting.remove(waiter)
        self._give(waiter, cores)

    def _place(self, process: Process) -> tuple[bool, float]:
        """The order of processes: those that are not beyond the mean first, and of these the earliest deadline."""
        return process.time > self._mean() + _LEAST, process.deadline

    def _fill(self) -> None:
        """Give free cores to processes that wait, and then to those with too few."""
        while self._free > _LEAST and self._waiting:
            process = min(self._waiting, key=self._place)
            self._waiting.remove(process)
            self._give(process, min(process.cores, self._free))
        if self._free > _LEAST and self._short:
            for process in list(self._short):
                self._give(process, min(process.cores - process.taken, self._free))

    def _give(self, process: Process, cores: float) -> None:
        process.settle(self._at)
        if not process.taken:
            process.since = self._at
            self._running[process] = None
        self._change(process, process.taken + cores)
        self._push(process)

    def _take(self, process: Process, cores: float) -> None:
        process.settle(self._at)
        left = process.taken - cores
        self._change(process, left if left > _LEAST else 0.0)
        if process.taken:
            self._push(process)
        else:
            del self._running[process]
            process.forget_end()

    def _change(self, process: Process, cores: float) -> None:
        if self._free > _LEAST and self._at > self._freed:
            self.slept_until = self._at
        if self._free <= _LEAST:
            self._freed = self._at
        self._free += process.taken - cores
        self._taken += cores - process.taken
        process.taken = cores
        if 0 < cores < process.cores - _LEAST:
            self._short[process] = None
        else:
            self._short.pop(process, None)

    def _mean(self) -> float:
        """The mean virtual time of the processes that want to work, by their weights."""
        return self._times / self._weight if self._weight else self._last

    # What comes next.

    def _push(self, process: Process) -> None:
        process.settle(self._at)
        if process.taken:
            order = next(self._orders)
            heapq.heappush(self._ends, (process.ends_at(order), order, process))

    def _plan(self) -> None:
        """Find the next event."""
        ends = self._ends
        while ends and not ends[0][2].is_newest(ends[0][1]):
            heapq.heappop(ends)
        self.next_at = ends[0][0] if ends else math.inf
        if self._waiting:
            ticks = self._ticks_until_now()
            at_tick = abs(ticks * self._tick - self._at) < _LEAST and ticks > self._ticks  # and not looked yet
            self.next_at = min(self.next_at, self._at if at_tick else (ticks + 1) * self._tick)

    def _ticks_until_now(self) -> int:
        return math.floor(self._at / self._tick + _LEAST)
