"""Distributes sentences among replicas, and returns the results to the callers."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from operator import attrgetter

from translane_server.core.errors import (
    EngineError,
    PoisonedError,
    QueueFullError,
    RequestError,
    UnavailableError,
    shutting_down,
)
from translane_server.engine.sequence import CertainTokens, Measurements, Sentence, SentenceResult, Task
from translane_server.workers.fair_queue import FairQueue
from translane_server.workers.interface import Replica, Report
from translane_server.workers.replica_load import ReplicaLoad
from translane_server.workers.submission import Accepted, Submission

_log = logging.getLogger(__name__)

# Bounds of the suggested delay before a retry, if the queue is full [seconds].
_RETRY_AFTER_MIN, _RETRY_AFTER_MAX = 0.1, 10.0
# Time in which another server takes over, or the model is loaded again [seconds].
_RETRY_STOPPED = 1.0

# After so many failures a sentence decodes alone.
_FAILURES_OF_SUSPECTS = 2
# A sentence that fails so often alone is at fault. A single such failure may be an accident.
_MOST_FAILURES_ALONE = 2

# After a loss nothing is sent for this time [seconds]. If several replicas are lost together, the sentences of the
# first one are then not sent to the next one, which has ended already, so that they do not seem to be the reason.
_SETTLING_TIME = 0.2

# Lower priorities count as this one between callers, so that there are few levels.
_LOWEST_LEVEL = -10

_FAILED = "decoding has failed, and this model translates nothing any more"

_rows = attrgetter("rows")


class Dispatcher:
    """Sends each sentence to the replica with the fewest rows to decode. Implements `ReplicaListener`.

    A sentence whose replica is lost, or whose step fails, is decoded again. Decoding is deterministic, so its caller
    does not notice.

    All calls come from one event loop.

    Args:
        replicas: the replicas, which all run the same model.
        waiting_limit: maximum number of sentences that wait for rows. A request that would exceed it is refused.
        most_priority: the highest priority that counts between callers.
        lone_rows: number of rows that the first replica decodes before another one begins.
        observe: called with the measurements of the replicas.
        count_loss: called for each replica that is lost.
        count_repeat: called for each sentence that is decoded again.
        clock: monotonic clock [seconds], equal in all processes.

    Attributes:
        availability_changed: called when `is_available` may have changed.
        failed: set when all replicas are given up. Nothing is decoded any more.
        waiting_limit: the argument.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        *,
        waiting_limit: int,
        most_priority: int = 0,
        lone_rows: int = 0,
        observe: Callable[[Measurements], None] = lambda _measurements: None,
        count_loss: Callable[[], None] = lambda: None,
        count_repeat: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        assert replicas, "there is no replica"
        self.failed = asyncio.Event()
        self._loads = {id(replica): ReplicaLoad(replica) for replica in replicas}
        self.waiting_limit = waiting_limit
        self._most_priority = most_priority
        self._first = self._loads[id(replicas[0])]
        self._lone_rows = lone_rows
        self._observe = observe
        self._count_loss = count_loss
        self._count_repeat = count_repeat
        self.availability_changed: Callable[[], None] = lambda: None
        self._clock = clock
        self._queue: FairQueue[Accepted] = FairQueue()
        self._again: deque[Accepted] = deque()  # sentences to decode again, before those in the queue
        self._alone: deque[Accepted] = deque()  # sentences to decode again, each alone in a replica
        self._kept: ReplicaLoad | None = None  # the replica that decodes them
        self._settling: asyncio.TimerHandle | None = None  # after a loss; until then nothing is sent
        self._numbers = itertools.count()
        self._requests: set[Submission] = set()  # requests that are not answered
        self._last_wait = 0.0
        self._over = False  # stopped or failed; all requests are answered

    @property
    def rows(self) -> int:
        """Maximum number of hypotheses that decode at once, in all replicas."""
        return sum(load.replica.rows for load in self._loads.values())

    @property
    def active_rows(self) -> int:
        """Maximum number of rows that the decoding sentences take, in all replicas."""
        return sum(load.active_rows for load in self._loads.values())

    @property
    def waiting(self) -> int:
        """Number of accepted sentences that wait for rows, here and in the replicas."""
        here = len(self._queue) + len(self._again) + len(self._alone)
        return here + sum([load.waiting for load in self._loads.values()])

    @property
    def is_available(self) -> bool:
        """Whether a replica can decode."""
        return not self._over and any(load.is_up for load in self._loads.values())

    async def start(self) -> None:
        """Start all replicas.

        Raises:
            StartupError: a replica cannot start.
        """
        starting = [asyncio.create_task(self._start(load)) for load in self._loads.values()]
        try:
            await asyncio.gather(*starting)
        except BaseException:
            await self.stop()
            await asyncio.gather(*starting, return_exceptions=True)
            raise

    async def stop(self) -> None:
        """Answer unfinished requests with UnavailableError, and end the replicas."""
        self._over = True
        self._fail_all(UnavailableError("the model has been unloaded, or the server is shutting down", _RETRY_STOPPED))
        await asyncio.gather(*(load.replica.stop() for load in self._loads.values()))

    # For callers

    def check_room(self, sentences: int, caller: str = "") -> None:
        """Raise the error with which `decode` would refuse this number of sentences now.

        A caller can so refuse a request before it makes the sentences. A caller of whom nothing waits gets all places
        that are free. Together with what waits already, a caller gets half of the places that others leave, so that a
        place is left for whoever comes next.

        Raises:
            QueueFullError: the sentences would exceed the waiting limit, or the caller's part of it.
            UnavailableError: the server is shutting down.
            EngineError: decoding has failed.
        """
        if self.failed.is_set():
            raise EngineError(_FAILED)
        if self._over:
            raise shutting_down()
        limit, waiting, own = self.waiting_limit, self.waiting, self._queue.count(caller)
        if waiting + sentences > limit:
            self._refuse(f"{waiting} sentences are waiting, {sentences} more would exceed the limit of {limit}")
        if own and 2 * (own + sentences) > limit - (waiting - own):
            self._refuse(f"{own} sentences of this caller are waiting, {sentences} more would leave too few places")

    async def decode(
        self, sentences: Sequence[Sentence], priority: int = 0, caller: str = ""
    ) -> tuple[SentenceResult, ...]:
        """Decode `sentences`, and return the result of each sentence.

        If the call is cancelled, the rows of the sentences are free at the next step.

        Args:
            sentences: the sentences to decode.
            priority: sentences of a higher priority enter the batch first, up to the highest priority that counts
                between callers. Sentences of one caller enter by priority in any case.
            caller: who asks. Callers with sentences of equal priority get equal shares of the work.

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
        self, sentences: Sequence[Sentence], priority: int = 0, caller: str = ""
    ) -> AsyncGenerator[CertainTokens | SentenceResult, None]:
        """Decode `sentences`, and yield the tokens and the result of each sentence, one sentence after the other.

        A sentence yields its new certain tokens as often as there are any, and then its result. A slow reader gets more
        tokens at a time. If the generator is closed early, the rows of the sentences are free at the next step.

        Args:
            sentences: the sentences to decode. They decode at the same time.
            priority: as for `decode`.
            caller: as for `decode`.

        Raises:
            RequestError: the request is refused (see `check_room`), or decoding fails.
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
                    if tokens := request.take_certain(place):
                        yield tokens
                    else:
                        await request.changed.wait()
        finally:
            self._forget(request)

    def _accept(self, sentences: Sequence[Sentence], priority: int, caller: str, *, streamed: bool) -> Submission:
        request = Submission(len(sentences), streamed=streamed)
        if not sentences:
            return request
        self.check_room(len(sentences), caller)
        self._requests.add(request)
        level = max(_LOWEST_LEVEL, min(priority, self._most_priority))
        now = self._clock()
        nobody_waits = not (len(self._queue) or self._again or self._alone or self._kept or self._settling)
        loads = self._loads_up()
        for place, sentence in enumerate(sentences):
            task = Task(next(self._numbers), level, now, streamed, sentence)
            accepted = Accepted(request, place, task, caller)
            request.accepted.append(accepted)
            if nobody_waits and self._send(accepted, loads):
                continue
            nobody_waits = False
            accepted.entry = self._queue.add(accepted, caller, level=level, priority=priority, cost=task.cost)
        if not nobody_waits:
            self._dispatch()
        return request

    def _refuse(self, message: str) -> None:
        raise QueueFullError(message, retry_after=min(max(self._last_wait, _RETRY_AFTER_MIN), _RETRY_AFTER_MAX))

    def _forget(self, request: Submission) -> None:
        """Drop the unfinished sentences of a request whose caller has gone."""
        self._requests.discard(request)
        request.is_over = True
        accepted, request.accepted = request.accepted, []
        if not request.missing or self._over:
            return
        waited = [self._queue.remove(each.entry) for each in accepted if each.entry]
        for load in self._loads.values():
            for each in accepted:
                if each.task.number in load.accepted:
                    load.replica.cancel(each.task.number)
        if any(waited):  # the next sentences in the queue may have room
            self._dispatch()

    # For replicas

    def reported(self, replica: Replica, report: Report) -> None:
        if self._over:
            return
        load = self._loads[id(replica)]
        for number, tokens in report.certain:
            accepted = load.accepted[number]
            accepted.request.add_certain(accepted.place, tokens)
        for number, result in report.ended:
            accepted = load.remove(number)
            self._charge(accepted, result)
            accepted.request.finish(accepted.place, result)
        for number in report.dropped:
            load.remove(number)
        if report.failed:
            failed = [load.remove(number) for number in report.failed]
            self._repeat(failed, EngineError("a sentence of this request cannot be decoded; the server's log says why"))
        if report.ended or report.dropped or report.failed or self._again or self._alone:
            self._dispatch()
        if report.measurements.queue_times:
            self._last_wait = report.measurements.queue_times[-1]
        self._observe(report.measurements)

    def lost(self, replica: Replica) -> None:
        load = self._loads[id(replica)]
        load.is_up = False
        if self._over:
            return
        self._count_loss()
        self._repeat(load.clear(), PoisonedError("a sentence of this request ends every replica that decodes it"))
        self.availability_changed()
        if self._settling:
            self._settling.cancel()
        self._settling = asyncio.get_running_loop().call_later(_SETTLING_TIME, self._settle)

    def returned(self, replica: Replica) -> None:
        load = self._loads[id(replica)]
        load.is_up, load.is_given_up = True, False
        if not self._over:
            self.availability_changed()
            self._dispatch()

    def given_up(self, replica: Replica) -> bool:
        self._loads[id(replica)].is_given_up = True
        if self._over:
            return False
        if not all(load.is_given_up for load in self._loads.values()):
            return True
        self._over = True
        self.failed.set()
        self._fail_all(EngineError(_FAILED))
        self.availability_changed()
        return False

    def _settle(self) -> None:
        self._settling = None
        if not self._over:
            self._dispatch()

    async def _start(self, load: ReplicaLoad) -> None:
        await load.replica.start(self)
        load.is_up = True

    def _charge(self, accepted: Accepted, result: SentenceResult) -> None:
        """Let the caller pay for a sentence that has become longer than expected."""
        task = accepted.task
        if (more := task.cost_of(max(len(each.token_ids) for each in result.hypotheses)) - task.cost) > 0:
            self._queue.charge(accepted.caller, task.priority, more)

    def _repeat(self, failed: Sequence[Accepted], error: RequestError) -> None:
        """Decode these sentences again, or refuse the sentence whose fault the failure is.

        Most failures are no sentence's fault, so after the first failure a sentence is decoded again as others are.
        After the second one it is decoded alone, so that it cannot harm others.
        """
        for accepted in failed:
            request = accepted.request
            if request.is_over or request.error:
                continue
            if len(failed) == 1:
                accepted.failures_alone += 1
            else:
                accepted.failures_together += 1
            if accepted.failures_alone >= _MOST_FAILURES_ALONE:
                _log.error("sentence %s is refused: %s", _digest(accepted.task.sentence), error)
                request.fail(error)
                continue
            self._count_repeat()
            request.restart(accepted.place)
            is_suspect = accepted.failures_alone + accepted.failures_together >= _FAILURES_OF_SUSPECTS
            (self._alone if is_suspect else self._again).append(accepted)

    def _loads_up(self) -> list[ReplicaLoad]:
        return [load for load in self._loads.values() if load.is_up]

    def _send(self, accepted: Accepted, loads: Sequence[ReplicaLoad]) -> bool:
        """Send a sentence to the replica with the fewest rows. Return whether it has room."""
        load = self._first if self._goes_first(accepted.task, loads) else min(loads, key=_rows, default=None)
        if load is None or not load.has_room_for(accepted.task):
            return False
        load.send(accepted)
        return True

    def _goes_first(self, task: Task, loads: Sequence[ReplicaLoad]) -> bool:
        """Whether the first replica decodes a sentence together with the few that it has."""
        first = self._first
        if (
            not first.rows
            or not first.replica.is_responsive
            or first.rows + task.rows > self._lone_rows
            or first not in loads
        ):
            return False
        return not any(load.rows for load in self._loads.values() if load is not first)

    def _dispatch(self) -> None:
        """Send sentences to the replicas, as long as the replicas have room."""
        if self._settling:
            return
        loads = self._loads_up()
        if self._again or self._alone or self._kept:
            loads = self._dispatch_again(loads)
            if self._again:  # they go first
                return
        queue = self._queue
        while (accepted := queue.first) and self._send(accepted, loads):
            queue.pop()
            accepted.entry = None

    def _dispatch_again(self, loads: list[ReplicaLoad]) -> list[ReplicaLoad]:
        """Send sentences that are decoded again. Return the replicas that may get other sentences, too.

        While sentences are to be decoded alone, one replica is kept for them: it gets no others, until it has decoded
        the last of them. A replica that may hang gets none of these sentences: they would seem to be the reason.
        """
        self._alone = deque(each for each in self._alone if not each.request.is_over)
        self._again = deque(each for each in self._again if not each.request.is_over)
        responsive = [load for load in loads if load.replica.is_responsive]
        kept = self._kept if self._kept in loads else None
        if self._alone and (kept or responsive):
            kept = kept or min(responsive, key=_rows)
            if not kept.accepted and kept in responsive:
                kept.send(self._alone.popleft())
        elif kept and not kept.accepted:
            kept = None
        self._kept = kept
        trusted = [load for load in responsive if load is not kept]
        while self._again and self._send(self._again[0], trusted):
            self._again.popleft()
        return [load for load in loads if load is not kept]

    def _fail_all(self, error: RequestError) -> None:
        self._queue.clear()
        self._again.clear()
        self._alone.clear()
        for load in self._loads.values():
            load.clear()
        for request in self._requests:
            if request.missing:  # a slow reader of a stream still gets what is decoded
                request.fail(error)
        self._requests.clear()


def _digest(sentence: Sentence) -> str:
    """A name of a sentence for the log, which must not have texts."""
    return hashlib.sha256(repr((sentence.source_ids, sentence.forced_ids)).encode()).hexdigest()[:16]
