"""Hands sentences to replicas, and their results to who asked for them."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from operator import attrgetter

from translane_server.errors import QueueFullError, RequestError
from translane_server.job import PendingRequest, RequestedJob, abandonment, refusal
from translane_server.observer import EngineObserver
from translane_server.replica.seam import Replica, Report
from translane_server.request import Request
from translane_server.scheduler import WaitingJobs

# Bounds of the delay suggested to a caller who finds the queue full [seconds].
_RETRY_AFTER_MIN, _RETRY_AFTER_MAX = 0.1, 10.0

_rows = attrgetter("rows")


class _Member:
    """A replica, and what the sentences it was sent do there: they decode as soon as it has rows, in order.

    Attributes:
        replica: decodes.
        rows: that all its sentences may come to take.
        active_rows: those of them that the decoding sentences may.
    """

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.rows = 0
        self.active_rows = 0
        self._capacity = replica.rows
        self._waiting: dict[int, int] = {}  # rows by number of the sentence

    @property
    def waiting(self) -> int:
        """How many of its sentences wait."""
        return len(self._waiting)

    def has_room_for(self, rows: int) -> bool:
        """Whether a sentence of so many rows is to be sent to it.

        As many as it has rows may wait there: they are encoded together, ahead of time, and rows become busy again as
        soon as they are free.
        """
        return self.rows + rows <= 2 * self._capacity

    def add(self, number: int, rows: int) -> None:
        """A sentence is sent to it."""
        self.rows += rows
        if self._waiting or self.active_rows + rows > self._capacity:
            self._waiting[number] = rows
        else:
            self.active_rows += rows

    def remove(self, number: int, rows: int) -> None:
        """A sentence needs its rows no more."""
        self.rows -= rows
        if self._waiting.pop(number, None) is None:
            self.active_rows -= rows
        while self._waiting:
            first = next(iter(self._waiting))
            if self.active_rows + self._waiting[first] > self._capacity:
                return
            self.active_rows += self._waiting.pop(first)


class Dispatcher:
    """Spreads sentences over replicas: each goes to the one with the fewest rows to decode. Lives in one event loop.

    Args:
        replicas: decode, all the same model; each as the others do.
        waiting_limit: how many sentences may wait for a row; a request that would exceed it is refused whole.
        observer: is told of every step, a little late.
        clock: seconds, monotonic, the same in all processes.

    Attributes:
        failed: set when a replica is lost, and nothing is decoded any more.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        *,
        waiting_limit: int,
        observer: EngineObserver,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        assert replicas, "somebody decodes"
        self.failed = asyncio.Event()
        self._members = {id(replica): _Member(replica) for replica in replicas}
        self._waiting_limit = waiting_limit
        self._observer = observer
        self._clock = clock
        self._jobs = WaitingJobs[RequestedJob]()
        self._numbers = itertools.count()
        self._pending: dict[Request, PendingRequest] = {}
        self._sent: dict[int, tuple[RequestedJob, _Member]] = {}
        self._last_wait = 0.0
        self._over = False  # stopped, or failed: everything is answered

    @property
    def rows(self) -> int:
        """How many hypotheses decode at once at most."""
        return sum(member.replica.rows for member in self._members.values())

    @property
    def active_rows(self) -> int:
        """How many rows the sentences that are decoding take, or may come to take."""
        return sum(member.active_rows for member in self._members.values())

    @property
    def waiting(self) -> int:
        """How many accepted sentences wait for a row."""
        return len(self._jobs) + sum([member.waiting for member in self._members.values()])

    async def start(self) -> None:
        """Start all replicas.

        Raises:
            StartupError: one of them cannot start.
        """
        starting = [asyncio.create_task(member.replica.start(self)) for member in self._members.values()]
        try:
            await asyncio.gather(*starting)
        except BaseException:
            await self.stop()
            await asyncio.gather(*starting, return_exceptions=True)
            raise

    async def stop(self) -> None:
        """Answer what is left with UnavailableError, and end the replicas."""
        self._over = True
        self._answer_all(failed=False)
        await asyncio.gather(*(member.replica.stop() for member in self._members.values()))

    # For callers

    def check_room(self, sentences: int) -> None:
        """Raise what `submit` would raise now for a request of so many sentences: cheaper than making one."""
        if self._over:
            raise refusal(failed=self.failed.is_set())
        if (waiting := self.waiting) + sentences > self._waiting_limit:
            raise QueueFullError(
                f"{waiting} sentences are waiting, {sentences} more would exceed the limit of {self._waiting_limit}",
                retry_after=min(max(self._last_wait, _RETRY_AFTER_MIN), _RETRY_AFTER_MAX),
            )

    def submit(self, request: Request) -> None:
        """Accept `request`; its `on_done` will be called once.

        Raises:
            QueueFullError: its sentences would exceed the waiting limit.
            UnavailableError: the server stops.
            EngineError: decoding has failed.
        """
        assert request.sentences, "a request has sentences"
        self.check_room(len(request.sentences))
        pending = self._pending[request] = PendingRequest(request, self._clock())
        self._jobs.add(pending.jobs())
        self._dispatch()

    def cancel(self, request: Request) -> None:
        """Give up `request`: its rows are free at the next step, and it is answered with CancelledError.

        A request that is answered already stays so.
        """
        pending = self._pending.get(request)
        if pending is None or pending.cancelled:
            return
        pending.cancelled = True
        dropped = self._jobs.remove(lambda job: job.pending is pending)
        for number, (job, member) in self._sent.items():
            if job.pending is pending:
                member.replica.cancel(number)
        if pending.drop(dropped):
            self._end(pending)
        if dropped:  # what waited behind it may have room
            self._dispatch()

    # For replicas

    def reported(self, replica: Replica, report: Report) -> None:
        """See `ReplicaListener`."""
        if self._over:
            return
        member = self._members[id(replica)]
        for number, token_ids, alignment in report.progress:
            job, _ = self._sent[number]
            if job.sentence.on_progress and not job.pending.cancelled:
                job.sentence.on_progress(token_ids, alignment)
        for number, result in report.ended:
            job, _ = self._sent.pop(number)
            member.remove(number, job.rows)
            pending = job.pending
            if pending.drop(1) if result is None else pending.finish(job, result):
                self._end(pending)
        if report.ended:
            self._dispatch()
        for name, *values in report.measurements:
            if name == "admitted":
                (self._last_wait,) = values
            getattr(self._observer, name)(*values)

    def lost(self, replica: Replica) -> None:  # noqa: ARG002 the listener's signature
        """See `ReplicaListener`."""
        self._over = True
        self.failed.set()
        self._answer_all(failed=True)

    def _dispatch(self) -> None:
        jobs, members = self._jobs, self._members.values()
        while job := jobs.first:
            member = min(members, key=_rows)
            if not member.has_room_for(job.rows):
                return
            jobs.pop()
            number = next(self._numbers)
            self._sent[number] = job, member
            member.add(number, job.rows)
            member.replica.submit(number, job)

    def _end(self, pending: PendingRequest, error: RequestError | None = None) -> None:
        del self._pending[pending.request]
        pending.answer(error)

    def _answer_all(self, *, failed: bool) -> None:
        self._jobs.clear()
        self._sent.clear()
        for pending in list(self._pending.values()):
            self._end(pending, abandonment(failed=failed))
