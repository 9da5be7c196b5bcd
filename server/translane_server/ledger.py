"""The accepted requests that are not answered: what waits, what decodes, and what is to be answered."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from translane_server.job import Job, PendingRequest, RequestedJob, abandonment, refusal
from translane_server.request import Hypothesis, Request, SentenceResult
from translane_server.scheduler import Scheduler


class WorkerLedger(Protocol):
    """What a worker takes sentences from, and gives them back to when they are done.

    Attributes:
        cancellations: how often something was cancelled; where it has changed, jobs that decode may be among that.
    """

    cancellations: int

    def wait(self, *, busy: bool) -> bool:
        """Let a worker that is not `busy` sleep while there is nothing to do; False when it is time to stop."""

    def admit(self, rows: int, reserved: int) -> Sequence[Job]:
        """The sentences that a worker takes now that has `rows` rows, of which `reserved` are spoken for."""

    def drop_cancelled(self, jobs: Iterable[Any]) -> Sequence[Job]:
        """Return those of `jobs`, which were admitted, that are cancelled: the worker is done with them."""

    def finish(self, done: Iterable[tuple[Any, tuple[Hypothesis, ...]]], now: float) -> None:
        """Jobs that were admitted are decoded."""

    def leave(self, failure: BaseException | None) -> None:
        """The worker stops, because of `failure` or because it is to."""


class Ledger:
    """Hands sentences to a worker, and answers requests when the last of their sentences is done.

    A request ends when none of its sentences waits or has rows, whether they were decoded or given up; so nobody hears
    of it after its answer. Callers add to it and its worker takes from it, each on threads of their own; its lock is
    held for no more than that.

    Args:
        encode_tokens: how many padded source tokens the worker takes at most at a time.

    Attributes:
        cancellations: see `WorkerLedger`.
        stopping: whether the worker is to stop, or has.
        failed: what ended the worker, if something did.
    """

    def __init__(self, encode_tokens: int) -> None:
        self.cancellations = 0
        self.stopping = False
        self.failed: BaseException | None = None
        self._scheduler = Scheduler[RequestedJob](encode_tokens)
        self._pending: dict[Request, PendingRequest] = {}
        self._ended: list[PendingRequest] = []  # cancelled before the worker had to do with it
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # for a worker that has nothing to do

    @property
    def waiting(self) -> int:
        """Sentences that are accepted and that the worker has not taken."""
        return len(self._scheduler)

    # For callers

    def accept(self, pending: PendingRequest) -> None:
        """Let all sentences of a request wait.

        Raises:
            EngineError: the worker has failed.
            UnavailableError: it stops.
        """
        jobs = pending.jobs()
        with self._lock:
            if self.stopping:
                raise refusal(failed=self.failed is not None)
            self._pending[pending.request] = pending
            self._scheduler.add(jobs)
            self._work.notify()

    def cancel(self, request: Request) -> None:
        """Give a request up, unless it has ended: what waits goes now, and the worker drops what decodes."""
        with self._lock:
            pending = self._pending.get(request)
            if pending is None or pending.cancelled:
                return
            pending.cancelled = True
            self.cancellations += 1
            dropped = self._scheduler.remove(lambda job: job.pending is pending)
            if pending.drop(dropped):
                self._ended.append(self._end(pending))
                self._work.notify()

    def stop(self) -> None:
        """Have the worker stop."""
        with self._lock:
            self.stopping = True
            self._work.notify()

    # For the worker: see `WorkerLedger`

    def wait(self, *, busy: bool) -> bool:
        """See `WorkerLedger`."""
        if not busy:  # else no lock: whatever changes now is seen at the next step
            with self._lock:
                while not (self.stopping or self.waiting or self._ended):
                    self._work.wait()
        if self._ended and not self.stopping:
            with self._lock:
                ended, self._ended = self._ended, []
            _answer(ended)
        return not self.stopping

    def admit(self, rows: int, reserved: int) -> list[RequestedJob]:
        """See `WorkerLedger`."""
        if reserved >= rows or not self.waiting:  # a look without the lock; the next step takes what comes now
            return []
        with self._lock:
            return self._scheduler.schedule(rows - reserved)

    def drop_cancelled(self, jobs: Iterable[RequestedJob]) -> list[RequestedJob]:
        """See `WorkerLedger`."""
        with self._lock:
            dropped = [job for job in jobs if job.pending.cancelled]
            ended = [self._end(job.pending) for job in dropped if job.pending.drop(1)]
        _answer(ended)
        return dropped

    def finish(self, done: Iterable[tuple[RequestedJob, tuple[Hypothesis, ...]]], now: float) -> None:
        """See `WorkerLedger`."""
        ended = []
        with self._lock:
            for job, hypotheses in done:
                if job.pending.finish(job, SentenceResult(hypotheses, job.timing(now))):
                    ended.append(self._end(job.pending))
        _answer(ended)

    def leave(self, failure: BaseException | None) -> None:
        """See `WorkerLedger`."""
        with self._lock:
            self.failed = failure
            self.stopping = True  # nothing is accepted from here on
            self._scheduler.clear()
            left = [*self._ended, *self._pending.values()]
            self._pending.clear()
        for pending in left:
            pending.answer(abandonment(failed=failure is not None))

    def _end(self, pending: PendingRequest) -> PendingRequest:
        del self._pending[pending.request]
        return pending


def _answer(ended: Iterable[PendingRequest]) -> None:
    for pending in ended:
        pending.answer()
