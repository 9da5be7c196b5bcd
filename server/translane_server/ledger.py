"""The accepted requests that are not answered: what waits, what decodes, and what is to be answered.

Callers add to it and its worker takes from it, each on threads of their own; its lock is held for no more than that.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from translane_server.errors import EngineError, UnavailableError
from translane_server.job import Job, PendingRequest
from translane_server.request import Request, SentenceResult
from translane_server.scheduler import Scheduler


class Ledger:
    """Hands sentences to a worker, and requests back when the last of their sentences is done.

    A request ends when none of its sentences waits or has rows, whether they were decoded or given up; so nobody hears
    of it after its answer.

    Args:
        encode_tokens: how many padded source tokens the worker takes at most at a time.

    Attributes:
        cancellations: how many requests were cancelled; where it has changed, some that decode may be among them.
        stopping: whether the worker is to stop, or has.
        failed: what ended the worker, if something did.
    """

    def __init__(self, encode_tokens: int) -> None:
        self.cancellations = 0
        self.stopping = False
        self.failed: BaseException | None = None
        self._scheduler = Scheduler(encode_tokens)
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
            if self.failed is not None:
                raise EngineError("the engine has failed; the server needs a restart")
            if self.stopping:
                raise UnavailableError("the server is shutting down", retry_after=1.0)
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

    # For the worker

    def wait(self, *, busy: bool) -> bool:
        """Let a worker that is not `busy` sleep while there is nothing to do; False when it is time to stop."""
        if busy:  # no lock: whatever changes now is seen at the next step
            return not self.stopping
        with self._lock:
            while not (self.stopping or self.waiting or self._ended):
                self._work.wait()
            return not self.stopping

    def admit(self, rows: int, reserved: int) -> list[Job]:
        """The sentences that a worker takes now that has `rows` rows, of which `reserved` are spoken for."""
        if reserved >= rows or not self.waiting:  # a look without the lock; the next step takes what comes now
            return []
        with self._lock:
            return self._scheduler.schedule(rows - reserved)

    def cancelled(self) -> list[PendingRequest]:
        """Requests that were cancelled while all their sentences waited."""
        if not self._ended:
            return []
        with self._lock:
            ended, self._ended = self._ended, []
        return ended

    def drop(self, jobs: Iterable[Job]) -> list[PendingRequest]:
        """`jobs` are given up, whose requests are cancelled; return the requests that end by that."""
        with self._lock:
            return [self._end(job.pending) for job in jobs if job.pending.drop(1)]

    def finish(self, results: Iterable[tuple[Job, SentenceResult]]) -> list[PendingRequest]:
        """Sentences are decoded; return the requests that end by that."""
        with self._lock:
            return [self._end(job.pending) for job, result in results if job.pending.finish(job, result)]

    def leave(self, failure: BaseException | None) -> Sequence[PendingRequest]:
        """The worker stops; return the requests that are left."""
        with self._lock:
            self.failed = failure
            self.stopping = True  # nothing is accepted from here on
            self._scheduler.clear()
            left = [*self._ended, *self._pending.values()]
            self._pending.clear()
            return left

    def _end(self, pending: PendingRequest) -> PendingRequest:
        del self._pending[pending.request]
        return pending
