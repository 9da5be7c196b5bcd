"""A worker: one backend, and the loop that decodes on it. Schedule, run, update."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice, zip_longest

from translane_server.backend import Backend, Candidates, RowMove
from translane_server.batch import RunningBatch
from translane_server.errors import EngineError, RequestError, UnavailableError
from translane_server.job import Job, PendingRequest
from translane_server.ledger import Ledger
from translane_server.observer import EngineObserver
from translane_server.request import Hypothesis, SentenceResult, Timing
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
        ledger: Ledger,
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
            while self._ledger.wait(busy=self._batch.size > 0 or len(self._queue) > 0):
                self._step()
        except Exception as error:  # noqa: BLE001 - whatever it is, every caller gets an answer
            _log.exception("the engine failed")
            failure = error
        self._answer(self._ledger.leave(failure), self._refusal)
        self._batch.clear()
        self._backend.close()

    @property
    def _refusal(self) -> RequestError:
        if self._ledger.failed is not None:
            return EngineError("decoding failed; the server needs a restart")
        return UnavailableError("the server has shut down", retry_after=1.0)

    def _step(self) -> None:
        """One iteration: whoever has come joins, every active row gets one token, whoever has ended leaves."""
        self._drop_cancelled()
        self._admit()
        self._move(self._batch.compact())
        if self._batch.size:
            candidates = self._decode()
            self._update(candidates)

    def _drop_cancelled(self) -> None:
        self._answer(self._ledger.cancelled())
        if self._cancellations == self._ledger.cancellations:
            return
        self._cancellations = self._ledger.cancellations
        leaving = {id(job): job for job in (*self._batch.jobs, *self._queue) if job.pending.cancelled}
        if leaving:
            self._batch.drop(lambda job: id(job) in leaving)
            encoded = zip_longest(self._queue, self._encoded)
            staying = [(job, number) for job, number in encoded if id(job) not in leaving]
            self._queue = deque(job for job, _ in staying)
            self._encoded = deque(number for _, number in staying if number is not None)
            self._answer(self._ledger.drop(leaving.values()))

    def _admit(self) -> None:
        """Give free rows to whoever waits: first to those that are encoded.

        When these have entered, those that wait are encoded together, for the free rows and as many more as there are
        rows. That costs less than encoding them one by one as rows become free; but a sentence of higher priority that
        comes later enters after them.
        """
        backend, batch = self._backend, self._batch
        if self._encoded:
            self._enter()
        if not self._queue and batch.reserved < backend.rows:
            self._queue += self._ledger.admit(2 * backend.rows, batch.reserved)
        while self._queue and not self._encoded and self._has_room():
            started = self._clock()
            encoded = backend.encode_ahead([job.sentence.source_ids for job in self._queue])
            self._encode_seconds = self._clock() - started
            self._encoded += range(encoded)
            tokens = sum(job.source_length for job in islice(self._queue, encoded))
            self._enter()
            self._observer.encoded(self._encode_seconds, encoded, tokens)

    def _has_room(self) -> bool:
        """Whether the first of the queue could begin."""
        return self._batch.reserved + self._queue[0].rows <= self._backend.rows

    def _enter(self) -> None:
        """Give rows to the first of those that are encoded, as many as there is room for."""
        jobs: list[Job] = []
        reserved, rows = self._batch.reserved, self._backend.rows
        while len(jobs) < len(self._encoded) and (reserved := reserved + self._queue[0].rows) <= rows:
            jobs.append(self._queue.popleft())
        if not jobs:
            return
        self._backend.enter([self._encoded.popleft() for _ in jobs], self._batch.add(jobs))
        now = self._clock()
        for job in jobs:
            job.admitted_at, job.encoded_at = now - self._encode_seconds, now
            self._observer.admitted(job.admitted_at - job.pending.submitted_at)
        self._newcomers += jobs

    def _decode(self) -> Candidates:
        started = self._clock()
        candidates = self._backend.decode_step(self._batch.token_ids, self._batch.positions, self._batch.needs)
        self._observer.stepped(self._clock() - started, self._batch.size)
        return candidates

    def _update(self, candidates: Candidates) -> None:
        update = self._batch.advance(candidates)
        now = self._clock()
        for job in self._newcomers:
            self._observer.first_token(now - job.pending.submitted_at)
        self._newcomers = []
        self._move(update.moves)
        if update.done:
            self._answer(self._ledger.finish((job, _result(job, found, now)) for job, found in update.done))

    def _move(self, moves: Sequence[RowMove]) -> None:
        if moves:
            started = self._clock()
            self._backend.move_rows(moves)
            self._observer.moved(self._clock() - started, len(moves))

    def _answer(self, ended: Iterable[PendingRequest], error: RequestError | None = None) -> None:
        for pending in ended:
            pending.answer(error)


def _result(job: Job, hypotheses: tuple[Hypothesis, ...], now: float) -> SentenceResult:
    timing = Timing(
        queue=job.admitted_at - job.pending.submitted_at,
        encode=job.encoded_at - job.admitted_at,
        decode=now - job.encoded_at,
    )
    return SentenceResult(hypotheses, timing)
