"""Hands sentences to replicas, and their results to who asked for them."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from operator import attrgetter
from typing import NamedTuple

from translane_server.dispatch.load import ReplicaLoad
from translane_server.dispatch.request import Request
from translane_server.errors import EngineError, QueueFullError, RequestError, UnavailableError
from translane_server.measurements import Measurements
from translane_server.priority_queue import PriorityQueue
from translane_server.replica.seam import Replica, Report
from translane_server.sentence import CertainTokens, Sentence, SentenceResult, Task

# Bounds of the delay suggested to a caller who finds the queue full [seconds].
_RETRY_AFTER_MIN, _RETRY_AFTER_MAX = 0.1, 10.0
_RETRY_DRAINING = 1.0  # [seconds]: another server is to take over

_rows = attrgetter("rows")


class _Accepted(NamedTuple):
    """A sentence of a request, and its place there."""

    request: Request
    place: int
    task: Task


class Dispatcher:
    """Spreads sentences over replicas: each goes to the one with the fewest rows to decode. Lives in one event loop.

    Args:
        replicas: decode, all the same model; each as the others do.
        waiting_limit: how many sentences may wait for a row; a request that would exceed it is refused whole.
        observe: takes what replicas have measured, a little late.
        clock: seconds, monotonic, the same in all processes.

    Attributes:
        failed: set when a replica is lost, and nothing is decoded any more.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        *,
        waiting_limit: int,
        observe: Callable[[Measurements], None] = lambda _measurements: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        assert replicas, "somebody decodes"
        self.failed = asyncio.Event()
        self._loads = {id(replica): ReplicaLoad(replica) for replica in replicas}
        self._waiting_limit = waiting_limit
        self._observe = observe
        self._clock = clock
        self._queue: PriorityQueue[_Accepted] = PriorityQueue()
        self._numbers = itertools.count()
        self._requests: set[Request] = set()  # that are not answered
        self._sent: dict[int, tuple[_Accepted, ReplicaLoad]] = {}
        self._last_wait = 0.0
        self._over = False  # stopped, or failed: everything is answered

    @property
    def rows(self) -> int:
        """How many hypotheses decode at once at most."""
        return sum(load.replica.rows for load in self._loads.values())

    @property
    def active_rows(self) -> int:
        """How many rows the sentences that are decoding take, or may come to take."""
        return sum(load.active_rows for load in self._loads.values())

    @property
    def waiting(self) -> int:
        """How many accepted sentences wait for a row."""
        return len(self._queue) + sum([load.waiting for load in self._loads.values()])

    async def start(self) -> None:
        """Start all replicas.

        Raises:
            StartupError: one of them cannot start.
        """
        starting = [asyncio.create_task(load.replica.start(self)) for load in self._loads.values()]
        try:
            await asyncio.gather(*starting)
        except BaseException:
            await self.stop()
            await asyncio.gather(*starting, return_exceptions=True)
            raise

    async def stop(self) -> None:
        """Answer what is left with UnavailableError, and end the replicas."""
        self._over = True
        self._fail_all(UnavailableError("the server has shut down", retry_after=_RETRY_DRAINING))
        await asyncio.gather(*(load.replica.stop() for load in self._loads.values()))

    # For callers

    def check_room(self, sentences: int) -> None:
        """Raise what `decode` would raise now for so many sentences: cheaper than making them.

        Raises:
            QueueFullError: they would exceed the waiting limit.
            UnavailableError: the server stops.
            EngineError: decoding has failed.
        """
        if self.failed.is_set():
            raise EngineError("the engine has failed; the server needs a restart")
        if self._over:
            raise UnavailableError("the server is shutting down", retry_after=_RETRY_DRAINING)
        if (waiting := self.waiting) + sentences > self._waiting_limit:
            raise QueueFullError(
                f"{waiting} sentences are waiting, {sentences} more would exceed the limit of {self._waiting_limit}",
                retry_after=min(max(self._last_wait, _RETRY_AFTER_MIN), _RETRY_AFTER_MAX),
            )

    async def decode(self, sentences: Sequence[Sentence], priority: int = 0) -> tuple[SentenceResult, ...]:
        """Decode `sentences`, and return the result of each.

        Where the task that waits is cancelled, their rows are free at the next step.

        Args:
            sentences: to decode.
            priority: a higher one enters the batch first; equal ones enter in order of arrival.

        Raises:
            RequestError: see `check_room`; or decoding fails.
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
        """Decode `sentences` side by side; yield what becomes of them, one after the other.

        Of each sentence come the tokens that are certain, as often as there are more, and then the result. A reader who
        is slow gets more tokens at a time. Where the generator is closed early, the rows are free at the next step.

        Raises:
            RequestError: see `check_room`; or decoding fails.
        """
        request = self._accept(sentences, priority, streamed=True)
        try:
            for place in range(len(sentences)):
                while True:
                    request.changed.clear()
                    if request.error:
                        raise request.error
                    if result := request.results[place]:
                        yield result
                        break
                    if tokens := request.take_certain(place):
                        yield tokens
                    else:
                        await request.changed.wait()
        finally:
            self._forget(request)

    def _accept(self, sentences: Sequence[Sentence], priority: int, *, streamed: bool) -> Request:
        request = Request(len(sentences), streamed=streamed)
        if sentences:
            self.check_room(len(sentences))
            self._requests.add(request)
            now = self._clock()
            for place, sentence in enumerate(sentences):
                task = Task(next(self._numbers), priority, now, streamed, sentence)
                self._queue.add(_Accepted(request, place, task), priority)
            self._dispatch()
        return request

    def _forget(self, request: Request) -> None:
        """Give up what is left of a request whose caller waits no more."""
        self._requests.discard(request)
        if not request.missing or request.error:
            return
        dropped = self._queue.remove(lambda accepted: accepted.request is request)
        for number, (accepted, load) in self._sent.items():
            if accepted.request is request:
                load.replica.cancel(number)
        if dropped:  # what waited behind it may have room
            self._dispatch()

    # For replicas

    def reported(self, replica: Replica, report: Report) -> None:
        """See `ReplicaListener`."""
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
        """See `ReplicaListener`."""
        self._over = True
        self.failed.set()
        self._fail_all(EngineError("decoding failed; the server needs a restart"))

    def _dispatch(self) -> None:
        """Send what waits to the replicas, as long as they have room."""
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
            request.fail(error)
        self._requests.clear()
