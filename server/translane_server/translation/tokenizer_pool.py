"""Threads that turn texts into tokens and back, away from the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from translane_server.core.budget import UNLIMITED, Budget
from translane_server.core.errors import QueueFullError, UnavailableError, shutting_down
from translane_server.workers.fair_queue import FairQueue

# The other CPUs run the model.
_THREADS = 2
_THREAD_NAME = "texts"  # `any_thread_runs` finds the threads by it

# The maximum work that is done on the event loop [bytes of the request + tokens of the answer]. It takes less than a
# millisecond, and mostly less than handing the work to another thread and back.
LITTLE_WORK = 1024

# More work than this may not take all threads, so that the requests of most callers find a thread [the same units].
_LARGE = 65536

# Maximum size of the requests that wait for a thread [bytes].
_WAITING_BYTES = 16 * 1024 * 1024

# Processor time that reading a request may take [seconds]. A million characters take half of it at worst, with the
# slowest of the tokenizers.
_READING_TIME = 10.0

# How long a caller should wait before it tries again [seconds].
_RETRY_FULL = 1.0

_Result = TypeVar("_Result")


class TokenizerPool:
    """Does the work on texts: little work at once, and other work on a few threads.

    The work of one caller is done in the order of arrival. Callers whose work waits get equal shares of the threads.

    All calls come from one event loop. The work checks its budget between its pieces. The work ends early if its caller
    is cancelled, or if the workers are stopped. The exit of the process does not wait for the threads.
    """

    def __init__(
        self, threads: int = _THREADS, *, waiting_bytes: int = _WAITING_BYTES, reading_time: float = _READING_TIME
    ) -> None:
        self._most_threads = threads
        self._most_large = max(1, threads - 1)
        self._most_bytes = waiting_bytes
        self._reading_time = reading_time
        self._threads: list[threading.Thread] = []
        self._handed: SimpleQueue[_Work[Any] | None] = SimpleQueue()
        # Work apart by whether it is large, fair between callers. Both kinds take turns.
        self._waiting: dict[bool, FairQueue[_Work[Any]]] = {False: FairQueue(), True: FairQueue()}
        self._last_was_large = False
        self._open: set[_Work[Any]] = set()  # that waits or runs
        self._running: set[_Work[Any]] = set()
        self._bytes = 0  # of the requests that wait
        self._stopped = False

    async def read(self, size: int, call: Callable[[Budget], _Result], caller: str = "") -> _Result:
        """Return what `call` returns, which reads a request of this size [bytes], and checks its budget.

        The budget has a limit of time, unless the work is little.

        Raises:
            QueueFullError: too much work waits for the threads.
            UnavailableError: the workers have stopped, or there is no thread.
        """
        if size <= LITTLE_WORK:
            return call(UNLIMITED)
        if self._bytes + size > self._most_bytes:
            problem = f"{self._bytes} bytes of requests wait to be read, {size} more would exceed the limit"
            raise QueueFullError(f"{problem} of {self._most_bytes}", retry_after=_RETRY_FULL)
        return await self._on_thread(size, size, Budget(self._reading_time), call, caller)

    async def build(self, work: int, call: Callable[[Budget], _Result], caller: str = "") -> _Result:
        """Return what `call` returns, which builds an answer. It is never refused, and its time has no limit.

        The work is the size of the request [bytes], and the tokens of the answer.

        Raises:
            UnavailableError: the workers have stopped, or there is no thread.
        """
        if work <= LITTLE_WORK:
            return call(UNLIMITED)
        return await self._on_thread(work, 0, Budget(), call, caller)

    def stop(self) -> None:
        """End all work. Its callers get an UnavailableError."""
        self._stopped = True
        for work in self._open:
            work.budget.end()
            if not work.outcome.done():
                work.outcome.set_exception(shutting_down())
        for _ in self._threads:
            self._handed.put(None)

    async def _on_thread(
        self, work: int, size: int, budget: Budget, call: Callable[[Budget], _Result], caller: str
    ) -> _Result:
        if self._stopped:
            raise shutting_down()
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[_Result] = loop.create_future()
        mine = _Work(size, work > _LARGE, budget, call, loop, outcome)
        waiting = self._waiting[mine.is_large]
        entry = waiting.add(mine, caller, cost=work)
        self._open.add(mine)
        self._bytes += size
        self._hand_out()
        try:
            return await outcome
        finally:
            budget.end()
            if waiting.remove(entry):
                self._bytes -= size
                self._open.discard(mine)

    def _hand_out(self) -> None:
        """Give work to the threads that have none."""
        while len(self._running) < self._most_threads and (work := self._next()):
            self._running.add(work)
            self._bytes -= work.size
            if len(self._threads) < len(self._running):
                # The interpreter does not wait for a daemon thread when it exits. A thread cannot be ended within a
                # library's call.
                thread = threading.Thread(
                    target=_work_off, args=(self._handed, self._ended), name=_THREAD_NAME, daemon=True
                )
                try:
                    thread.start()
                    self._threads.append(thread)
                except RuntimeError:  # the system allows no more of them; those that run take the work
                    if not self._threads:
                        self._running.discard(work)
                        self._open.discard(work)
                        if not work.outcome.done():
                            problem = "no thread can be started to read texts"
                            work.outcome.set_exception(UnavailableError(problem, retry_after=_RETRY_FULL))
                        continue
            self._handed.put(work)

    def _next(self) -> _Work[Any] | None:
        """Take the next work that may run now from those that wait."""
        small, large = self._waiting[False], self._waiting[True]
        takes_large = large.size > 0 and sum(work.is_large for work in self._running) < self._most_large
        if not small.size and not takes_large:
            return None
        self._last_was_large = takes_large and not (small.size > 0 and self._last_was_large)
        return (large if self._last_was_large else small).pop()

    def _ended(self, work: _Work[Any], result: object, error: BaseException | None) -> None:
        self._running.discard(work)
        self._open.discard(work)
        if work.outcome.done():  # the caller has gone, or the workers have stopped
            pass
        elif error:
            work.outcome.set_exception(error)
        else:
            work.outcome.set_result(result)
        if not self._stopped:
            self._hand_out()


def any_thread_runs() -> bool:
    """Whether a thread of this process still works on a text, or waits for work."""
    return any(thread.name == _THREAD_NAME for thread in threading.enumerate())


@dataclass(eq=False, slots=True)
class _Work(Generic[_Result]):
    """A call for a thread, and what comes of it."""

    size: int
    is_large: bool
    budget: Budget
    call: Callable[[Budget], _Result]
    loop: asyncio.AbstractEventLoop
    outcome: asyncio.Future[_Result]


def _work_off(
    handed: SimpleQueue[_Work[Any] | None], ended: Callable[[_Work[Any], object, BaseException | None], None]
) -> None:
    """Do the work that is `handed` to this thread, until it gets None."""
    while work := handed.get():
        result, error = None, None
        try:
            work.budget.start()
            result = work.call(work.budget)
        except BaseException as raised:  # noqa: BLE001 the caller raises it
            error = raised
        try:
            work.loop.call_soon_threadsafe(ended, work, result, error)
        except RuntimeError:  # the event loop is closed
            return
        del work, result, error  # a thread that waits holds no request
