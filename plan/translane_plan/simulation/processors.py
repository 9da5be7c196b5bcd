"""The cores of a machine, shared by processes that want to work.

Linux shares a core among processes by their weights (https://docs.kernel.org/scheduler/sched-design-CFS.html). The
server starts its replicas with a niceness of 10, so that front ends go first. The simulation shares cores without
slices: at each moment all threads of one niceness go on at the same speed, and no thread goes faster than one core.

Where Linux groups processes by sessions, the niceness counts only within a session, and a replica has a session of its
own: so a front end and a replica get equal parts (https://man7.org/linux/man-pages/man7/sched.7.html, autogroups).
Within a container there are no such groups.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from enum import IntEnum

from translane_plan.simulation.timeline import Timeline


class Niceness(IntEnum):
    """The processes that go on at equal speeds; the place of their weight among the weights."""

    FRONT = 0
    REPLICA = 1


# Of the niceness 0 and 10: `sched_prio_to_weight` of the kernel (kernel/sched/core.c).
WEIGHTS = (1024.0, 110.0)
EQUAL_WEIGHTS = (1024.0, 1024.0)


class Job:
    """Work of a process that is under way.

    Attributes:
        niceness: of the process.
        cores: cores that the process keeps busy.
        begun: work of any process of this niceness when the job began [seconds].
        ends: the same work when the job ends.
    """

    __slots__ = ("begun", "cores", "ends", "event", "niceness")

    def __init__(self, niceness: Niceness, cores: float, begun: float, ends: float, event: Callable[[], None]) -> None:
        self.niceness = niceness
        self.cores = cores
        self.begun = begun
        self.ends = ends
        self.event = event


class Processors:
    """Cores, and the jobs that share them. Implements `timeline.Clockwork`.

    A niceness has a clock of its own, which counts the work that each of its threads gets done. This clock goes slower
    than time while cores are short. So a job ends at a fixed reading of that clock, whatever begins meanwhile.

    Args:
        timeline: the time.
        cores: cores of the machine.
        others: cores that other programs want all the time, at the niceness of front ends.
        weights: weight of each niceness.

    Attributes:
        used: core seconds that the jobs have taken.
    """

    def __init__(
        self, timeline: Timeline, cores: float, others: float = 0.0, weights: tuple[float, float] = WEIGHTS
    ) -> None:
        self._cores = cores
        self._front, self._replica = weights
        self._others = others
        self._work = [0.0, 0.0]
        self._speeds = [1.0, 1.0]
        self._wanted = [0.0, 0.0]
        self._jobs: tuple[list[tuple[float, int, Job]], ...] = ([], [])
        self._count = 0
        self._at = 0.0
        self._next: Niceness = Niceness.FRONT
        self.next_at = math.inf
        self.used = 0.0
        timeline.add(self)

    def begin(self, niceness: Niceness, seconds: float, cores: float, event: Callable[[], None]) -> Job:
        """Begin a job of `seconds` of work on `cores` cores at once; `event` is called when it is done."""
        begun = self._work[niceness]
        job = Job(niceness, cores, begun, begun + seconds, event)
        self._wanted[niceness] += cores
        self._push(job)
        self._share()
        return job

    def progress(self, job: Job) -> float:
        """The seconds of work of a job that are done."""
        return self._work[job.niceness] - job.begun

    def shorten(self, job: Job, seconds: float) -> None:
        """Let a job end after `seconds` of work, which is less than it was to take."""
        job.ends = job.begun + seconds
        self._push(job)
        self._plan()

    def advance(self, now: float) -> None:
        passed = now - self._at
        if passed > 0:
            for niceness in Niceness:
                done = passed * self._speeds[niceness]
                self._work[niceness] += done
                self.used += done * self._wanted[niceness]
            self._at = now

    def fire(self) -> None:
        niceness = self._next
        ends, _, job = heapq.heappop(self._jobs[niceness])
        self._work[niceness] = ends  # exactly, whatever the rounding on the way
        self._wanted[niceness] = max(0.0, self._wanted[niceness] - job.cores) if self._jobs[niceness] else 0.0
        job.ends = -1.0  # an older entry of the job counts no more
        self._share()
        job.event()

    def _push(self, job: Job) -> None:
        self._count += 1
        heapq.heappush(self._jobs[job.niceness], (job.ends, self._count, job))

    def _share(self) -> None:
        """Find the speed of each niceness: see the top of this file."""
        front, replica = self._wanted[Niceness.FRONT] + self._others, self._wanted[Niceness.REPLICA]
        speeds = self._speeds
        if front + replica <= self._cores:
            speeds[0] = speeds[1] = 1.0
        else:
            share = self._cores / (self._front * front + self._replica * replica)
            if self._front * share >= 1:  # front ends have cores of their own, and replicas share the rest
                speeds[0], speeds[1] = 1.0, (self._cores - front) / replica
            else:
                speeds[0], speeds[1] = self._front * share, self._replica * share
        self._plan()

    def _plan(self) -> None:
        """Find the next event."""
        self.next_at = math.inf
        for niceness in Niceness:
            jobs = self._jobs[niceness]
            while jobs and jobs[0][0] != jobs[0][2].ends:  # the job was shortened
                heapq.heappop(jobs)
            if jobs:
                at = self._at + max(0.0, jobs[0][0] - self._work[niceness]) / self._speeds[niceness]
                if at < self.next_at:
                    self.next_at, self._next = at, niceness
