"""The accepted requests that are not answered: what waits, what decodes, and what is to be answered.

Callers add to it and workers take from it, each on threads of their own; its lock is held for no more than that.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from translane_server.errors import EngineError, QueueFullError, UnavailableError
from translane_server.job import Job, PendingRequest
from translane_server.request import Request, SentenceResult
from translane_server.scheduler import Scheduler

# Bounds of the delay suggested to a caller who finds the queue full [seconds].
_RETRY_AFTER_MIN, _RETRY_AFTER_MAX = 0.1, 10.0


class Ledger:
    """Hands sentences to `workers` workers, and requests back when the last of their sentences is done.

    A request ends when none of its sentences waits or has rows, whether they were decoded or given up; so nobody hears
    of it after its answer.

    Args:
        workers: how many take from it; each calls `leave` once.
        waiting_limit: how many sentences may wait.
        encode_tokens: how many padded source tokens a worker takes at most at a time.

    Attributes:
        waiting: sentences that are accepted and that no worker has taken.
        cancellations: how many requests were cancelled; where it has changed, some that decode may be among them.
        last_wait: how long the sentence admitted last had waited [seconds].
        draining: whether new requests are refused.
        stopping: whether workers are to stop, or have.
        failed: what ended a worker, if something did.
    """

    def __init__(self, workers: int, waiting_limit: int, encode_tokens: int) -> None:
        self.waiting = 0
        self.cancellations = 0
        self.last_wait = 0.0
        self.draining = False
        self.stopping = False
        self.failed: BaseException | None = None
        self._workers = workers
        self._present = workers
        self._waiting_limit = waiting_limit
        self._scheduler = Scheduler(encode_tokens)
        self._pending: dict[Request, PendingRequest] = {}
        self._ended: list[PendingRequest] = []  # cancelled before any worker had to do with it
        self._decoding_rows = 0  # that the workers' sentences may come to take
        self._unanswered = 0  # requests
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # for workers that have nothing to do
        self._answered = threading.Condition(self._lock)

    # For callers

    def check_room(self, sentences: int) -> None:
        """Raise what `accept` would raise now for a request of so many sentences."""
        if self.failed is not None:
            raise EngineError("the engine has failed; the server needs a restart")
        if self.draining or self.stopping:
            raise UnavailableError("the server is shutting down", retry_after=1.0)
        if self.waiting + sentences > self._waiting_limit:
            raise QueueFullError(
                f"{self.waiting} sentences are waiting, {sentences} more would exceed"
                f" the limit of {self._waiting_limit}",
                retry_after=min(max(self.last_wait, _RETRY_AFTER_MIN), _RETRY_AFTER_MAX),
            )

    def accept(self, pending: PendingRequest) -> None:
        """Let all sentences of a request wait.

        Raises:
            QueueFullError: they would exceed the waiting limit.
            UnavailableError: nothing is accepted any more.
        """
        jobs = pending.jobs()
        with self._lock:
            self.check_room(len(jobs))
            self._pending[pending.request] = pending
            self._scheduler.add(jobs)
            self.waiting += len(jobs)
            self._unanswered += 1
            self._work.notify(len(jobs))

    def cancel(self, request: Request) -> None:
        """Give a request up, unless it has ended: what waits goes now, and workers drop what decodes."""
        with self._lock:
            pending = self._pending.get(request)
            if pending is None or pending.cancelled:
                return
            pending.cancelled = True
            self.cancellations += 1
            dropped = self._scheduler.remove(lambda job: job.pending is pending)
            self.waiting -= dropped
            if pending.drop(dropped):
                self._ended.append(self._end(pending))
                self._work.notify()

    def drain(self, timeout: float | None) -> bool:
        """Refuse new requests, and wait `timeout` seconds at most until all others are answered: whether they are."""
        with self._lock:
            self.draining = True
            return self._answered.wait_for(lambda: self._unanswered == 0, timeout)

    def stop(self) -> None:
        """Have the workers stop."""
        with self._lock:
            self.stopping = True
            self._work.notify_all()

    # For workers

    def wait(self, *, busy: bool) -> bool:
        """Let a worker that is not `busy` sleep while there is nothing to do; False when it is time to stop."""
        if busy:  # no lock: whatever changes now is seen at the next step
            return not self.stopping
        with self._lock:
            while not (self.stopping or len(self._scheduler) or self._ended):
                self._work.wait()
            return not self.stopping

    def admit(self, rows: int, reserved: int) -> list[Job]:
        """The sentences that enter a worker now that has `rows` rows, of which `reserved` are spoken for.

        None takes more than its share, so that workers have about equally many rows; the one with the fewest rows
        always finds something to take.
        """
        if reserved >= rows or not len(self._scheduler):  # a look without the lock; the next step takes what comes now
            return []
        with self._lock:
            share = -(-(self._decoding_rows + self._scheduler.rows) // self._workers)
            jobs = self._scheduler.schedule(rows - reserved, share - reserved)
            self.waiting -= len(jobs)
            self._decoding_rows += sum(job.rows for job in jobs)
        return jobs

    def cancelled(self) -> list[PendingRequest]:
        """Requests that were cancelled while all their sentences waited, for one worker to answer."""
        if not self._ended:
            return []
        with self._lock:
            ended, self._ended = self._ended, []
        return ended

    def drop(self, jobs: Iterable[Job]) -> list[PendingRequest]:
        """A worker has given up `jobs`, whose requests are cancelled; return the requests that end by that."""
        with self._lock:
            return [self._end(job.pending) for job in jobs if self._leave_rows(job).drop(1)]

    def finish(self, results: Iterable[tuple[Job, SentenceResult]]) -> list[PendingRequest]:
        """A worker has decoded sentences; return the requests that end by that."""
        with self._lock:
            return [self._end(job.pending) for job, result in results if self._leave_rows(job).finish(job, result)]

    def answered(self, requests: int) -> None:
        """So many requests that ended are answered."""
        with self._lock:
            self._unanswered -= requests
            if not self._unanswered:
                self._answered.notify_all()

    def leave(self, failure: BaseException | None) -> Sequence[PendingRequest]:
        """A worker stops, and so do all others; return to the last of them the requests that are left."""
        with self._lock:
            self.failed = self.failed or failure
            self.stopping = True  # nothing is accepted from here on
            self._work.notify_all()
            self._present -= 1
            if self._present:
                return []
            self.waiting = 0
            left = [*self._ended, *self._pending.values()]
            self._pending.clear()
            return left

    def _leave_rows(self, job: Job) -> PendingRequest:
        self._decoding_rows -= job.rows
        return job.pending

    def _end(self, pending: PendingRequest) -> PendingRequest:
        del self._pending[pending.request]
        return pending
