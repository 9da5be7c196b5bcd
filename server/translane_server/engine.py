"""The engine: continuous batching in one loop on its own thread. Schedule, run, update.

A sentence joins the running batch at the next decoder step and leaves it the moment it ends (iteration-level
scheduling: Yu et al. 2022, https://www.usenix.org/conference/osdi22/presentation/yu). What is decoded for a sentence
never depends on the sentences beside it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from translane_server.backend import Backend, Candidates, RowMove
from translane_server.batch import RunningBatch
from translane_server.errors import CancelledError, EngineError, QueueFullError, RequestError, UnavailableError
from translane_server.job import Job, PendingRequest
from translane_server.observer import EngineObserver, NullObserver
from translane_server.request import Hypothesis, Request, Sentence, SentenceResult, Timing
from translane_server.scheduler import Scheduler
from translane_server.vocabulary import TargetVocabulary

_log = logging.getLogger(__name__)

# Bounds of the delay suggested to a caller who finds the queue full [seconds].
_RETRY_AFTER_MIN, _RETRY_AFTER_MAX = 0.1, 10.0


class Engine:
    """Decodes requests on `backend`, continuously batched.

    `submit`, `cancel`, `drain` and `stop` may be called from any thread; `on_done` of a request is called exactly
    once, on the engine's thread.

    Args:
        backend: runs the model; the engine closes it when it stops.
        vocabulary: of the target.
        waiting_limit: how many sentences may wait for a row; a request that would exceed it is refused whole.
        encode_tokens: how many padded source tokens are encoded at most between two decoder steps.
        observer: is told of every step.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        vocabulary: TargetVocabulary,
        waiting_limit: int,
        encode_tokens: int,
        observer: EngineObserver | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._backend = backend
        self._observer = observer or NullObserver()
        self._clock = clock
        self._waiting_limit = waiting_limit
        self._scheduler = Scheduler(encode_tokens)
        self._batch = RunningBatch(backend.rows, backend.target_capacity, backend.source_capacity, vocabulary)
        self._pending: dict[Request, PendingRequest] = {}
        self._newcomers: Sequence[Job] = []  # encoded in this step
        self._last_wait = 0.0  # how long the last sentence admitted had waited
        self._thread = threading.Thread(target=self._loop, name="engine", daemon=True)

        # Shared with the callers' threads, under this condition's lock.
        self._changed = threading.Condition()
        self._submitted: list[PendingRequest] = []
        self._cancelled: list[Request] = []
        self._waiting = 0  # sentences accepted and not admitted
        self._unanswered = 0  # requests
        self._draining = False
        self._stopping = False
        self._failed: BaseException | None = None

    @property
    def rows(self) -> int:
        """How many hypotheses decode at once at most."""
        return self._backend.rows

    @property
    def active_rows(self) -> int:
        """How many hypotheses are decoding now."""
        return self._batch.size

    @property
    def waiting(self) -> int:
        """How many accepted sentences wait for a row."""
        return self._waiting

    @property
    def failed(self) -> BaseException | None:
        """What ended the engine's thread, if something did: nothing is decoded any more."""
        return self._failed

    def start(self) -> None:
        """Start decoding."""
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Accept `request`; its `on_done` will be called once.

        Raises:
            QueueFullError: its sentences would exceed the waiting limit.
            UnavailableError: the engine is draining or has stopped.
        """
        assert request.sentences, "a request has sentences"
        for sentence in request.sentences:
            self._check(sentence)
        with self._changed:
            self.check_room(len(request.sentences))
            self._submitted.append(PendingRequest(request, self._clock()))
            self._waiting += len(request.sentences)
            self._unanswered += 1
            self._changed.notify_all()

    def _check(self, sentence: Sentence) -> None:
        """The service refuses what cannot be decoded; this finds where it does not."""
        backend, options = self._backend, sentence.options
        assert 1 <= len(sentence.source_ids) <= backend.source_capacity, "source tokens out of bounds"
        forced, counted = len(sentence.forced_ids), sentence.counted_ids
        assert 0 <= counted <= forced, "counted tokens are forced ones"
        longest = max(forced - counted + options.max_length, forced + min(options.max_length, 1))
        assert 1 <= longest <= backend.target_capacity, "max_length out of bounds"
        assert 1 <= options.rows <= backend.rows, "more beams or hypotheses than rows"
        independent = options.sampling is not None or options.alternatives
        assert independent or options.num_hypotheses <= options.beam_size, "more hypotheses than beams"
        assert backend.has_attention or not options.attention, "this backend has no attention weights"

    def check_room(self, sentences: int) -> None:
        """Raise what `submit` would raise now for a request of so many sentences: cheaper than making one."""
        if self._failed is not None:
            raise EngineError("the engine has failed; the server needs a restart")
        if self._draining or self._stopping:
            raise UnavailableError("the server is shutting down", retry_after=1.0)
        if self._waiting + sentences > self._waiting_limit:
            raise QueueFullError(
                f"{self._waiting} sentences are waiting, {sentences} more would exceed"
                f" the limit of {self._waiting_limit}",
                retry_after=min(max(self._last_wait, _RETRY_AFTER_MIN), _RETRY_AFTER_MAX),
            )

    def cancel(self, request: Request) -> None:
        """Give up `request`: its rows are free at the next step, and it is answered with CancelledError.

        A request that is answered already stays so.
        """
        with self._changed:
            self._cancelled.append(request)
            self._changed.notify_all()

    def drain(self, timeout: float | None = None) -> bool:
        """Refuse new requests and wait until all accepted ones are answered, `timeout` seconds at most.

        Returns:
            Whether all are answered.
        """
        with self._changed:
            self._draining = True
            return self._changed.wait_for(lambda: self._unanswered == 0, timeout)

    def stop(self) -> None:
        """Stop decoding, answer what is left with UnavailableError, and close the backend."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    # The rest runs on the engine's thread.

    def _loop(self) -> None:
        error: RequestError = UnavailableError("the server has shut down", retry_after=1.0)
        try:
            while self._wait_for_work():
                self._step()
        except Exception as failure:  # noqa: BLE001 - whatever it is, every caller gets an answer
            _log.exception("the engine failed")
            with self._changed:
                self._failed = failure
            error = EngineError("decoding failed; the server needs a restart")
        with self._changed:
            self._stopping = True  # nothing is accepted from here on
        self._take_commands()
        for pending in list(self._pending.values()):
            self._answer(pending, error)
        with self._changed:
            self._waiting = 0
        self._batch.clear()
        self._backend.close()

    def _wait_for_work(self) -> bool:
        """Sleep while there is nothing to do; False when it is time to stop."""
        with self._changed:
            idle = not self._pending
            while idle and not (self._submitted or self._stopping):
                self._cancelled.clear()  # of requests that are answered already
                self._changed.wait()
            return not self._stopping

    def _step(self) -> None:
        """One iteration: whoever has come joins, every active row gets one token, whoever has ended leaves."""
        self._drop(self._take_commands())
        admitted = self._scheduler.schedule(self._backend.rows - self._batch.reserved)
        if admitted:
            self._encode(admitted)
        if self._batch.size:
            candidates = self._decode()
            self._update(candidates)

    def _take_commands(self) -> list[Request]:
        """Queue what was submitted; return what was cancelled."""
        if not (self._submitted or self._cancelled):  # a look without the lock; the next step takes what comes now
            return []
        with self._changed:
            submitted, self._submitted = self._submitted, []
            cancelled, self._cancelled = self._cancelled, []
        for pending in submitted:
            self._pending[pending.request] = pending
            self._scheduler.add(pending.jobs())
        return cancelled

    def _drop(self, cancelled: Sequence[Request]) -> None:
        leaving = {id(self._pending[request]) for request in cancelled if request in self._pending}
        if not leaving:
            return
        dropped = self._scheduler.remove(lambda job: id(job.pending) in leaving)
        with self._changed:
            self._waiting -= dropped
        self._move(self._batch.drop(lambda job: id(job.pending) in leaving))
        for request in cancelled:
            if pending := self._pending.get(request):
                self._answer(pending, CancelledError("the request was cancelled"))

    def _encode(self, jobs: Sequence[Job]) -> None:
        started = self._clock()
        self._backend.encode([job.sentence.source_ids for job in jobs], first_row=self._batch.size)
        self._batch.add(jobs)
        ended = self._clock()
        with self._changed:
            self._waiting -= len(jobs)
        for job in jobs:
            job.admitted_at, job.encoded_at = started, ended
            self._observer.admitted(started - job.pending.submitted_at)
        self._newcomers = jobs
        self._last_wait = started - jobs[-1].pending.submitted_at
        self._observer.encoded(ended - started, len(jobs), sum(job.source_length for job in jobs))

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
        for job, hypotheses in update.done:
            self._finish(job, hypotheses, now)

    def _move(self, moves: Sequence[RowMove]) -> None:
        if moves:
            started = self._clock()
            self._backend.move_rows(moves)
            self._observer.moved(self._clock() - started, len(moves))

    def _finish(self, job: Job, hypotheses: tuple[Hypothesis, ...], now: float) -> None:
        pending = job.pending
        timing = Timing(
            queue=job.admitted_at - pending.submitted_at,
            encode=job.encoded_at - job.admitted_at,
            decode=now - job.encoded_at,
        )
        if pending.finish(job, SentenceResult(hypotheses, timing)):
            self._answer(pending)

    def _answer(self, pending: PendingRequest, error: RequestError | None = None) -> None:
        del self._pending[pending.request]
        try:
            pending.answer(error)
        except Exception:  # noqa: BLE001 - one caller's bug is not the others' problem
            _log.exception("a request's callback failed")
        with self._changed:
            self._unanswered -= 1
            self._changed.notify_all()
