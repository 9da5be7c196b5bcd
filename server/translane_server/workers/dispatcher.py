"""Distributes sentences among workers, and returns the results to the callers."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import abc, deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import KW_ONLY, dataclass, field
from operator import attrgetter

from translane_server.core.errors import (
    EngineError,
    PoisonedError,
    QueueFullError,
    RequestError,
    UnavailableError,
    shutting_down,
)
from translane_server.engine.sequence import CommittedTokens, EngineOutput, Sentence, SentenceResult, StepStats
from translane_server.workers.fair_queue import FairQueue
from translane_server.workers.inflight import AcceptedSequence, InFlight
from translane_server.workers.quarantine import Quarantine
from translane_server.workers.spares import SharedCpus, Spares
from translane_server.workers.worker import State, Worker

_log = logging.getLogger(__name__)

# Bounds of the suggested delay before a retry, if the queue is full [seconds].
_RETRY_AFTER_MIN, _RETRY_AFTER_MAX = 0.1, 10.0
# Time in which another server takes over, or the model is loaded again [seconds].
_RETRY_STOPPED, _RETRY_FAILING = 1.0, 5.0

# After so many failures a sentence decodes alone. After a loss, so do the sentences that the lost worker had hardly
# begun, if there are few: most sentences that end workers do so at once.
_FAILURES_OF_SUSPECTS = 2
_FEW_SUSPECTS = 8
# A sentence that fails so often alone is at fault. A single such failure may be an accident.
_MOST_FAILURES_ALONE = 2
# A lack of memory is no sentence's fault. But a sentence that has failed more often than this, and then for lack of
# memory, is refused for now.
_MOST_STARVED = 3

# After a loss that no known suspect explains, nothing is sent for this time [seconds]. If several workers are lost
# together, the sentences of the first one are then not sent to the next one, which has ended already, so that they do
# not seem to be the reason.
_SETTLING_TIME = 0.2
# Turns of the event loop until it has read of a loss during a pause of it: uvloop calls timers before it reads.
_TURNS = 3

# Lower priorities count as this one between callers, so that there are few levels.
_LOWEST_LEVEL = -10

_POISONED = "a sentence of this request ends every replica that decodes it"
_STARVED = "a sentence of this request needs more memory than there is at the moment"
_FAILING = "the model does not decode at the moment; the server's log has the details"

_rows = attrgetter("rows")


@dataclass(eq=False)
class Dispatcher:
    """Sends each sentence to the worker with the fewest rows to decode.

    A sentence whose worker is lost, or whose step fails, is decoded again. Decoding is deterministic, so its caller
    does not notice.

    All calls come from one event loop.
    """

    residents: abc.Sequence[Worker]  # the workers that always run; all have the same model
    _: KW_ONLY
    # further workers, which run while the others are crowded and other models leave CPUs idle
    spares: Spares = field(default_factory=lambda: Spares((), SharedCpus(0)))
    waiting_limit: int  # maximum number of sentences that wait for rows. A request that would exceed it is refused
    most_priority: int = 0  # the highest priority that counts between callers
    lone_rows: int = 0  # the first worker alone decodes up to this many rows
    observe: Callable[[StepStats], None] = lambda _measurements: None  # called with the measurements of the workers
    count_repeat: Callable[[], None] = lambda: None  # called for each sentence that is decoded again

    def __post_init__(self) -> None:
        assert self.residents, "there is no worker"
        self._workers = [*self.residents, *self.spares.workers]
        self._first = self.residents[0]
        self.availability_changed: Callable[[], None] = lambda: None  # called when `is_available` may have changed
        self._queue: FairQueue[AcceptedSequence] = FairQueue()
        self._again: deque[AcceptedSequence] = deque()  # sentences to decode again, before those in the queue
        self._alone: deque[AcceptedSequence] = deque()  # sentences to decode again, each alone in a worker
        self._kept: Worker | None = None  # the worker that decodes them
        self._quarantine = Quarantine()
        self._settling: asyncio.Handle | None = None  # after a loss; until then nothing is sent
        self._numbers = itertools.count()
        self._requests: set[InFlight] = set()  # requests that are not answered
        self._last_wait = 0.0
        self._over = False  # stopped; all requests are answered

    @property
    def rows(self) -> int:
        """Maximum number of hypotheses that decode at once, in all workers that do not rest."""
        return sum(worker.capacity for worker in self._workers if worker.state is not State.RESTING)

    @property
    def active_rows(self) -> int:
        """Maximum number of rows that the decoding sentences take, in all workers."""
        return sum(worker.active_rows for worker in self._workers)

    @property
    def waiting(self) -> int:
        """Number of accepted sentences that wait for rows, here and in the workers."""
        here = self._queue.size + len(self._again) + len(self._alone)
        return here + sum([len(worker.waiting) for worker in self._workers])

    @property
    def is_available(self) -> bool:
        """Whether a worker can decode."""
        return not self._over and any(worker.state is State.UP for worker in self._workers)

    @property
    def is_failing(self) -> bool:
        """Whether all workers have been lost many times in a row. Each is still tried again."""
        states = {worker.state for worker in self._workers}
        return not self._over and State.FAILING in states and states <= {State.FAILING, State.RESTING}

    async def start(self) -> None:
        """Start all workers but the spare ones. Raises StartupError if one cannot start."""
        self.spares.start(self.residents)
        starting = [asyncio.create_task(worker.start(self)) for worker in self.residents]
        try:
            await asyncio.gather(*starting)
        except BaseException:
            await self.stop()
            await asyncio.gather(*starting, return_exceptions=True)
            raise

    async def stop(self) -> None:
        """Answer unfinished requests with UnavailableError, and end the workers."""
        self._over = True
        self.spares.stop()
        self._fail_all(UnavailableError("the model has been unloaded, or the server is shutting down", _RETRY_STOPPED))
        await asyncio.gather(*(worker.stop() for worker in self._workers))

    # For callers

    def check_room(self, sentences: int, caller: str = "") -> None:
        """Raise the error with which `decode` would refuse this number of sentences now.

        A caller can so refuse a request before it makes the sentences. A caller of whom nothing waits gets all places
        that are free. Together with what waits already, a caller gets half of the places that others leave, so that a
        place is left for whoever comes next.

        Raises:
            QueueFullError: the sentences would exceed the waiting limit, or the caller's part of it.
            UnavailableError: the server is shutting down, or all workers are failing.
        """
        if self._over:
            raise shutting_down()
        if self._first.state is not State.UP and self.is_failing:
            raise UnavailableError(_FAILING, _RETRY_FAILING)
        limit, waiting, own = self.waiting_limit, self.waiting, self._queue.of_callers.get(caller, 0)
        if waiting + sentences > limit:
            self._refuse(f"{waiting} sentences are waiting, {sentences} more would exceed the limit of {limit}")
        if own and 2 * (own + sentences) > limit - (waiting - own):
            self._refuse(f"{own} sentences of this caller are waiting, {sentences} more would leave too few places")

    async def decode(
        self, sentences: abc.Sequence[Sentence], priority: int = 0, caller: str = ""
    ) -> tuple[SentenceResult, ...]:
        """Decode `sentences`, and return the result of each sentence.

        If the call is cancelled, the rows of the sentences are free at the next step.

        Sentences of a higher priority enter the batch first, up to the highest priority that counts between callers.
        Sentences of one caller enter by priority in any case. Callers with sentences of equal priority get equal shares
        of the work.

        Raises:
            RequestError: the request is refused (see `check_room`), or decoding fails.
        """
        request = self._accept(sentences, priority, caller, streamed=False)
        try:
            if request.missing:
                await request.changed.wait()
        finally:
            self._forget(request)
        if request.error:
            raise request.error
        return tuple([result for result in request.results if result])

    async def stream(
        self, sentences: abc.Sequence[Sentence], priority: int = 0, caller: str = ""
    ) -> AsyncGenerator[CommittedTokens | SentenceResult, None]:
        """Decode `sentences`, and yield the tokens and the result of each sentence, one sentence after the other.

        A sentence yields its new committed tokens as often as there are any, and then its result. A slow reader gets
        more tokens at a time. If the generator is closed early, the rows of the sentences are free at the next step.
        The sentences decode at the same time. The arguments and errors are those of `decode`.
        """
        request = self._accept(sentences, priority, caller, streamed=True)
        try:
            for place in range(len(sentences)):
                while True:
                    request.changed.clear()
                    if result := request.results[place]:
                        yield result
                        break
                    if request.error:
                        raise request.error
                    if tokens := request.take_committed(place):
                        yield tokens
                    else:
                        await request.changed.wait()
        finally:
            self._forget(request)

    def _accept(self, sentences: abc.Sequence[Sentence], priority: int, caller: str, *, streamed: bool) -> InFlight:
        request = InFlight([None] * len(sentences), len(sentences), streamed=streamed, caller=caller)
        if not sentences:
            return request
        self.check_room(len(sentences), caller)
        if self._quarantine.was_used and self._quarantine.knows_any(sentences):
            raise PoisonedError(_POISONED)
        self._requests.add(request)
        level = max(_LOWEST_LEVEL, min(priority, self.most_priority))
        now = time.perf_counter()  # equal in all processes
        nobody_waits = not (self._queue.size or self._again or self._alone or self._kept or self._settling)
        workers = self._usable()
        for place, sentence in enumerate(sentences):
            sequence = AcceptedSequence(next(self._numbers), level, now, streamed, sentence, request, place)
            request.sequences.append(sequence)
            if nobody_waits and self._send(sequence, workers):
                continue
            nobody_waits = False
            sequence.entry = self._queue.add(sequence, caller, level=level, priority=priority, cost=sequence.cost())
        if not nobody_waits:
            self._dispatch()
        if self.spares.workers:
            self.spares.look(self)
        return request

    def _refuse(self, message: str) -> None:
        raise QueueFullError(message, retry_after=min(max(self._last_wait, _RETRY_AFTER_MIN), _RETRY_AFTER_MAX))

    def _forget(self, request: InFlight) -> None:
        """Drop the unfinished sequences of a request whose caller has gone."""
        self._requests.discard(request)
        request.is_over = True
        sequences, request.sequences = request.sequences, []
        if not request.missing or self._over:
            return
        waited = [self._queue.remove(each.entry) for each in sequences if each.entry]
        for worker in self._workers:
            for each in sequences:
                worker.cancel(each.number)
        if any(waited):  # the next sequences in the queue may have room
            self._dispatch()

    # For workers, on the event loop

    def received(self, worker: Worker, output: EngineOutput) -> None:
        """Take what a worker has sent."""
        if self._over:
            return
        for number, tokens in output.committed:
            sequence = worker.sequences[number]
            sequence.request.add_committed(sequence.place, tokens)
        for number, result in output.ended:
            sequence = worker.remove(number)
            if self._queue.size:
                self._charge(sequence, result)
            sequence.request.finish(sequence.place, result)
        for number in output.dropped:
            worker.remove(number)
        if output.failed:
            failed = [worker.remove(number) for number in output.failed]
            self._repeat(failed, EngineError("a sentence of this request cannot be decoded; the server's log says why"))
        has_left = output.ended or output.dropped or output.failed
        if self._again or self._alone or (has_left and (self._queue.size or self._kept)):
            self._dispatch()
        if self.spares.workers:
            self.spares.look(self)
        if output.stats.queue_times:
            self._last_wait = output.stats.queue_times[-1]
        self.observe(output.stats)

    def lost(self, worker: Worker) -> bool:
        """Decode the sequences of a worker again that has ended, though it was not stopped.

        Returns:
            Whether the worker may be at fault, and not a sequence.
        """
        if self._over:
            return False
        newest = worker.newest
        sequences = worker.clear()
        is_known = len(sequences) == 1 and sequences[0].is_suspect
        error: RequestError = PoisonedError(_POISONED)
        if worker.is_starved:
            error, is_known = UnavailableError(_STARVED, _RETRY_FAILING), False
        elif len(newest) <= _FEW_SUSPECTS:
            for sequence in sequences:
                sequence.is_suspect |= sequence.number in newest
        self._repeat(sequences, error)
        self.availability_changed()
        if not is_known:
            if self._settling:
                self._settling.cancel()
            self._settling = asyncio.get_running_loop().call_later(_SETTLING_TIME, self._settle, _TURNS)
        return not is_known

    def changed(self) -> None:
        """A lost worker takes sequences again; or it is failing, and is still tried again."""
        if self._over:
            return
        if self.is_failing:
            self._fail_all(UnavailableError(_FAILING, _RETRY_FAILING))
        self.availability_changed()
        self._dispatch()

    def _settle(self, turns: int = 0) -> None:
        """Send sentences again, after so many turns of the event loop."""
        if turns:
            self._settling = asyncio.get_running_loop().call_soon(self._settle, turns - 1)
            return
        self._settling = None
        if not self._over:
            self._dispatch()

    def _charge(self, sequence: AcceptedSequence, result: SentenceResult) -> None:
        """Let the caller pay for a sequence that has become longer than expected."""
        took = sequence.cost(max([len(each.token_ids) for each in result.hypotheses]))
        if (more := took - sequence.cost()) > 0:
            self._queue.charge(sequence.request.caller, sequence.priority, more)

    def _repeat(self, failed: abc.Sequence[AcceptedSequence], error: RequestError) -> None:
        """Decode these sequences again, or refuse one whose fault the failure is, or for which memory lacks too often.

        Most failures are no sequence's fault, so after the first failure a sequence is decoded again as others are. A
        suspect is decoded alone, so that it cannot harm others.
        """
        is_starved = isinstance(error, UnavailableError)
        for sequence in failed:
            request = sequence.request
            if request.is_over or request.error:
                continue
            sequence.failures += 1
            sequence.failures_alone += len(failed) == 1 and not is_starved
            if sequence.failures_alone >= _MOST_FAILURES_ALONE or (is_starved and sequence.failures > _MOST_STARVED):
                name, facts = self._quarantine.name(sequence.sentence), self._first.connection.facts
                _log.error("sentence %s is refused: %s", name, error, extra=facts)
                if isinstance(error, PoisonedError):
                    self._quarantine.add(sequence.sentence, request.caller)
                request.fail(error)
                continue
            self.count_repeat()
            request.restart(sequence.place)
            sequence.is_suspect |= sequence.failures >= _FAILURES_OF_SUSPECTS
            if sequence.failures_alone:  # its next trial decides
                self._alone.appendleft(sequence)
            else:
                (self._alone if sequence.is_suspect else self._again).append(sequence)

    def _usable(self) -> list[Worker]:
        """The workers that may get sequences now."""
        up = [worker for worker in self.residents if worker.state is State.UP]
        return up + self.spares.usable(up) if self.spares.workers else up

    def _send(self, sequence: AcceptedSequence, workers: abc.Sequence[Worker]) -> bool:
        """Send a sequence to the worker with the fewest rows. Return whether it has room."""
        goes_first = self.lone_rows and self._goes_first(sequence, workers)
        worker = self._first if goes_first else min(workers, key=_rows, default=None)
        return worker is not None and worker.take(sequence)

    def _goes_first(self, sequence: AcceptedSequence, workers: abc.Sequence[Worker]) -> bool:
        """Whether the first worker decodes a sequence together with the few that it has."""
        first = self._first
        if (
            not first.rows
            or first.rows + sequence.sentence.options.rows > self.lone_rows
            or not first.is_responsive
            or first not in workers
        ):
            return False
        return not any(worker.rows for worker in self._workers if worker is not first)

    def _dispatch(self) -> None:
        """Send sequences to the workers, as long as the workers have room."""
        if self._settling:
            return
        workers = self._usable()
        if self._again or self._alone or self._kept:
            workers = self._dispatch_again(workers)
            if self._again:  # they go first
                return
        queue = self._queue
        while sequence := queue.first:
            if self._is_refused(sequence):
                queue.pop()
                continue
            if not self._send(sequence, workers):
                return
            queue.pop()
            sequence.entry = None

    def _dispatch_again(self, workers: list[Worker]) -> list[Worker]:
        """Send sequences that are decoded again. Return the workers that may get other sequences, too.

        While sequences are to be decoded alone, one worker is kept for them: it gets no others, until it has decoded
        the last of them. A worker that may hang gets none of these sequences: they would seem to be the reason.
        """
        self._alone = deque(each for each in self._alone if not (each.request.is_over or self._is_refused(each)))
        self._again = deque(each for each in self._again if not (each.request.is_over or self._is_refused(each)))
        responsive = [worker for worker in workers if worker.is_responsive]
        kept = self._kept if self._kept in workers else None
        if self._alone:
            kept = kept or self._worker_to_keep(responsive)
            if kept and not kept.sequences and kept in responsive:
                kept.take(self._next_alone())
        elif kept and not kept.sequences:
            kept = None
        self._kept = kept
        trusted = [worker for worker in responsive if worker is not kept]
        while self._again and self._send(self._again[0], trusted):
            self._again.popleft()
        return [worker for worker in workers if worker is not kept]

    def _next_alone(self) -> AcceptedSequence:
        """Remove and return the next sequence to decode alone. Those of callers who send poison come last."""
        alone, quarantine = self._alone, self._quarantine
        sequence = next((each for each in alone if not quarantine.knows_caller(each.request.caller)), alone[0])
        alone.remove(sequence)
        return sequence

    def _worker_to_keep(self, responsive: abc.Sequence[Worker]) -> Worker | None:
        """A worker that has nothing to do, or soon returns; the one with the least to do where none returns."""
        worker = min(responsive, key=_rows, default=None)
        if worker and worker.rows and any(each.state is State.LOST for each in self._workers):
            return None
        return worker

    def _is_refused(self, sequence: AcceptedSequence) -> bool:
        """Refuse a sequence whose sentence was refused meanwhile."""
        if not self._quarantine.knows_any([sequence.sentence]):
            return False
        sequence.request.fail(PoisonedError(_POISONED))
        return True

    def _fail_all(self, error: RequestError) -> None:
        self._queue = FairQueue()
        self._again.clear()
        self._alone.clear()
        for worker in self._workers:
            worker.clear()
        for request in self._requests:
            request.sequences = []
            if request.missing:  # a slow reader of a stream still gets what is decoded
                request.fail(error)
        self._requests.clear()
