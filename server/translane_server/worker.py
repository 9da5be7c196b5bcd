"""A worker: one backend, and the loop that decodes on it. Schedule, run, update."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice, zip_longest

from translane_server.backend import Backend, RowMove
from translane_server.batch.running import RunningBatch
from translane_server.job import Job
from translane_server.ledger import WorkerLedger
from translane_server.observer import EngineObserver
from translane_server.vocabulary import TargetVocabulary

_log = logging.getLogger(__name__)


class Worker:
    """Decodes what it takes from the ledger, on a thread of its own or on its caller's.

    Args:
        name: of its thread.
        backend: runs the model; closed when the worker ends.
        ledger: where sentences come from and go to.
        vocabulary: of the target.
        observer: is told of every step.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        name: str,
        backend: Backend,
        ledger: WorkerLedger,
        vocabulary: TargetVocabulary,
        observer: EngineObserver,
        clock: Callable[[], float],
    ) -> None:
        self._backend = backend
        self._ledger = ledger
        self._observer = observer
        self._clock = clock
        self._batch = RunningBatch(backend.rows, backend.target_capacity, backend.source_capacity, vocabulary)
        self._queue: deque[Job] = deque()  # taken from the ledger, and without rows yet
        self._encoded: deque[int] = deque()  # the numbers by which the backend knows the first of them
        self._encode_seconds = 0.0  # what encoding these has taken
        self._newcomers: list[Job] = []  # entered in this step
        self._cancellations = 0  # of the ledger's, those that were looked at
        self._thread = threading.Thread(target=self.run, name=name, daemon=True)

    @property
    def active_rows(self) -> int:
        """How many hypotheses are decoding now."""
        return self._batch.size

    def start(self) -> None:
        """Start decoding."""
        self._thread.start()

    def join(self) -> None:
        """Wait until a worker that was started has ended."""
        if self._thread.ident is not None:
            self._thread.join()

    # The rest runs on the worker's thread, or on that of whoever calls `run` in place of `start`.

    def run(self) -> None:
        """Decode until the ledger says to stop; whatever goes wrong, every caller gets an answer."""
        failure: Exception | None = None
        try:
            while self._ledger.wait(busy=self._batch.reserved > 0 or len(self._queue) > 0):
                self._step()
        except Exception as error:  # noqa: BLE001 - whatever it is, every caller gets an answer
            _log.exception("the engine failed")
            failure = error
        self._ledger.leave(failure)
        self._batch.clear()
        self._backend.close()

    def _step(self) -> None:
        """One iteration: whoever has come joins, every active row gets one token, whoever has ended leaves."""
        batch = self._batch
        if self._cancellations != self._ledger.cancellations:
            self._drop_cancelled()
        if batch.reserved < self._backend.rows:
            self._admit()
        if moves := batch.compact():
            self._move(moves)
        if batch.reserved:
            self._decode()

    def _drop_cancelled(self) -> None:
        self._cancellations = self._ledger.cancellations
        jobs = dict.fromkeys((*self._batch.jobs, *self._queue))  # a job of several rows once
        leaving = set(self._ledger.drop_cancelled(jobs))
        if leaving:
            self._batch.drop(leaving.__contains__)
            encoded = zip_longest(self._queue, self._encoded)
            staying = [(job, number) for job, number in encoded if job not in leaving]
            self._queue = deque(job for job, _ in staying)
            self._encoded = deque(number for _, number in staying if number is not None)

    def _admit(self) -> None:
        """Give free rows to whoever waits: first to those that are encoded.

        When these have entered, those that wait are encoded together, for the free rows and as many more as there are
        rows. That costs less than encoding them one by one as rows become free; but a sentence of higher priority that
        comes later enters after them.
        """
        backend, batch, queue = self._backend, self._batch, self._queue
        if self._encoded:
            self._enter()
        if not queue and batch.reserved < backend.rows:
            queue += self._ledger.admit(2 * backend.rows, batch.reserved)
        while queue and not self._encoded and batch.reserved + queue[0].rows <= backend.rows:
            started = self._clock()
            encoded = backend.encode_ahead([job.sentence.source_ids for job in queue])
            self._encode_seconds = self._clock() - started
            self._encoded += range(encoded)
            tokens = sum([job.source_length for job in islice(queue, encoded)])
            self._enter()
            self._observer.encoded(self._encode_seconds, encoded, tokens)

    def _enter(self) -> None:
        """Give rows to the first of those that are encoded, as many as there is room for."""
        queue, encoded = self._queue, self._encoded
        jobs: list[Job] = []
        numbers: list[int] = []
        free = self._backend.rows - self._batch.reserved
        while encoded and (free := free - queue[0].rows) >= 0:
            jobs.append(queue.popleft())
            numbers.append(encoded.popleft())
        if not jobs:
            return
        self._backend.enter(numbers, self._batch.add(jobs))
        now = self._clock()
        admitted_at, admitted = now - self._encode_seconds, self._observer.admitted
        for job in jobs:
            job.admitted_at, job.encoded_at = admitted_at, now
            admitted(admitted_at - job.submitted_at)
        self._newcomers += jobs

    def _decode(self) -> None:
        batch, observer = self._batch, self._observer
        size, steps = batch.size, self._steps_ahead()
        started = self._clock()
        if steps > 1:
            token_ids = self._backend.decode_ahead(batch.token_ids, batch.positions, steps)
        else:
            candidates = self._backend.decode_step(batch.token_ids, batch.positions, batch.needs)
        seconds = (self._clock() - started) / steps
        for _ in range(steps):
            observer.stepped(seconds, size)
        update = batch.advance_ahead(token_ids) if steps > 1 else batch.advance(candidates)
        now = self._clock()
        if self._newcomers:
            for job in self._newcomers:
                observer.first_token(now - job.submitted_at)
            self._newcomers = []
        if update.moves:
            self._move(update.moves)
        if update.done:
            self._ledger.finish(update.done, now)

    def _steps_ahead(self) -> int:
        """How many steps to take before looking at what has come of them: several where that keeps nobody waiting."""
        most = self._backend.steps_at_once
        if most == 1 or self._queue:
            return 1
        return max(1, min(most, self._batch.greedy_steps))

    def _move(self, moves: Sequence[RowMove]) -> None:
        started = self._clock()
        self._backend.move_rows(moves)
        self._observer.moved(self._clock() - started, len(moves))
