"""Distributes sentences among replicas, and returns the results to the callers."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from operator import attrgetter
from typing import NamedTuple

from translane_server.dispatch.replica_load import ReplicaLoad
from translane_server.dispatch.submission import Submission
from translane_server.errors import EngineError, QueueFullError, RequestError, UnavailableError
from translane_server.measurements import Measurements
from translane_server.priority_queue import PriorityQueue
from translane_server.replica.interface import Replica, Report
from translane_server.sentence import CertainTokens, Sentence, SentenceResult, Task

# Bounds of the suggested delay before a retry, if the queue is full [seconds].
_RETRY_AFTER_MIN, _RETRY_AFTER_MAX = 0.1, 10.0
_RETRY_DRAINING = 1.0  # [seconds]; meanwhile another server can take over

_FAILED = "decoding has failed, and this server is ending"

_rows = attrgetter("rows")


class _Submitted(NamedTuple):
    """A sentence in a request: the request, the place in the request, and the task."""

    request: Submission
    place: int
    task: Task


class Dispatcher:
    """Sends each sentence to the replica with the fewest rows to decode. Implements `ReplicaListener`.

    All calls come from one event loop.

    Args:
        replicas: the replicas, which all run the same model.
        waiting_limit: maximum number of sentences that wait for rows. A request that would exceed it is refused.
        observe: called with the measurements of the replicas.
        clock: monotonic clock [seconds], equal in all processes.

    Attributes:
        failed: set when a replica is lost. Nothing is decoded any more.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        *,
        waiting_limit: int,
        observe: Callable[[Measurements], None] = lambda _measurements: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        assert replicas, "there is no replica"
        self.failed = asyncio.Event()
        self._loads = {id(replica): ReplicaLoad(replica) for replica in replicas}
        self._waiting_limit = waiting_limit
        self._observe = observe
        self._clock = clock
        self._queue: PriorityQueue[_Submitted] = PriorityQueue()
        self._numbers = itertools.count()
        self._requests: set[Submission] = set()  # requests that are not answered
        self._sent: dict[int, tuple[_Submitted, ReplicaLoad]] = {}
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
        return len(self._queue) + sum([load.waiting for load in self._loads.values()])

    async def start(self) -> None:
        """Start all replicas.

        Raises:
            StartupError: a replica cannot start.
        """
        starting = [asyncio.create_task(load.replica.start(self)) for load in self._loads.values()]
        try:
            await asyncio.gather(*starting)
        except BaseException:
            await self.stop()
            await asyncio.gather(*starting, return_exceptions=True)
            raise

    async def stop(self) -> None:
        """Answer unfinished requests with UnavailableError, and end the replicas."""
        self._over = True
        self._fail_all(UnavailableError("the server has shut down", retry_after=_RETRY_DRAINING))
        await asyncio.gather(*(load.replica.stop() for load in self._loads.values()))

    # For callers

    def check_room(self, sentences: int) -> None:
        """Raise the error with which `decode` would refuse this number of sentences now.

        A caller can so refuse a request before it makes the sentences.

        Raises:
            QueueFullError: the sentences would exceed the waiting limit.
            UnavailableError: the server is shutting down.
            EngineError: decoding has failed.
        """
        if self.failed.is_set():
            raise EngineError(_FAILED)
        if self._over:
            raise UnavailableError("the server is shutting down", retry_after=_RETRY_DRAINING)
        if (waiting := self.waiting) + sentences > self._waiting_limit:
            raise QueueFullError(
                f"{waiting} sentences are waiting, {sentences} more would exceed the limit of {self._waiting_limit}",
                retry_after=min(max(self._last_wait, _RETRY_AFTER_MIN), _RETRY_AFTER_MAX),
            )

    async def decode(self, sentences: Sequence[Sentence], priority: int = 0) -> tuple[SentenceResult, ...]:
        """Decode `sentences`, and return the result of each sentence.

        If the call is cancelled, the rows of the sentences are free at the next step.

        Args:
            sentences: the sentences to decode.
            priority: sentences of higher priority enter the batch first; equal priorities in order of arrival.

        Raises:
            RequestError: the request is refused (see `check_room`), or decoding fails.
        """
        request = self._accept(sentences, priority, streamed=False)
        try:
            if request.missing:
                await request.changed.wait()
        finally:
            self._forget(request)
        if request.error:
            raise request.error
        return tuple([result for result in request.results if result])

    async def stream(
        self, sentences: Sequence[Sentence], priority: int = 0
    ) -> AsyncGenerator[CertainTokens | SentenceResult, None]:
        """Decode `sentences`, and yield the tokens and the result of each sentence, one sentence after the other.

        A sentence yields its new certain tokens as often as there are any, and then its result. A slow reader gets more
        tokens at a time. If the generator is closed early, the rows of the sentences are free at the next step.

        Args:
            sentences: the sentences to decode. They decode at the same time.
            priority: as for `decode`.

        Raises:
            RequestError: the request is refused (see `check_room`), or decoding fails.
        """
        request = self._accept(sentences, priority, streamed=True)
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

    def _accept(self, sentences: Sequence[Sentence], priority: int, *, streamed: bool) -> Submission:
        request = Submission(len(sentences), streamed=streamed)
        if sentences:
            self.check_room(len(sentences))
            self._requests.add(request)
            now = self._clock()
            for place, sentence in enumerate(sentences):
                task = Task(next(self._numbers), priority, now, streamed, sentence)
                self._queue.add(_Submitted(request, place, task), priority)
            self._dispatch()
        return request

    def _forget(self, request: Submission) -> None:
        """Drop the unfinished sentences of a request whose caller has gone."""
        self._requests.discard(request)
        if not request.missing or request.error:
            return
        dropped = self._queue.remove(lambda accepted: accepted.request is request)
        for number, (accepted, load) in self._sent.items():
            if accepted.request is request:
                load.replica.cancel(number)
        if dropped:  # the next sentences in the queue may have room
            self._dispatch()

    # For replicas

    def reported(self, replica: Replica, report: Report) -> None:
        if self._over:
            return
        load, sent = self._loads[id(replica)], self._sent
        for number, tokens in report.certain:
            accepted, _ = sent[number]
            accepted.request.add_certain(accepted.place, tokens)
        for number, result in report.ended:
            accepted, _ = sent.pop(number)
            load.remove(accepted.task)
            accepted.request.finish(accepted.place, result)
        for number in report.dropped:
            accepted, _ = sent.pop(number)
            load.remove(accepted.task)
        if report.ended or report.dropped:
            self._dispatch()
        if report.measurements.queue_times:
            self._last_wait = report.measurements.queue_times[-1]
        self._observe(report.measurements)

    def lost(self, replica: Replica) -> None:  # noqa: ARG002 the listener's signature
        self._over = True
        self.failed.set()
        self._fail_all(EngineError(_FAILED))

    def _dispatch(self) -> None:
        """Send sentences from the queue to the replicas, as long as the replicas have room."""
        queue, loads = self._queue, self._loads.values()
        while accepted := queue.first:
            load = min(loads, key=_rows)
            if not load.has_room_for(accepted.task.rows):
                return
            queue.pop()
            task = accepted.task
            self._sent[task.number] = accepted, load
            load.add(task)
            load.replica.submit(task)

    def _fail_all(self, error: RequestError) -> None:
        self._queue.clear()
        self._sent.clear()
        for request in self._requests:
            if request.missing:  # a slow reader of a stream still gets what is decoded
                request.fail(error)
        self._requests.clear()
