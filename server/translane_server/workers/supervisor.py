"""Keeps a replica running: notices that its process is lost or hangs, and starts another one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Protocol

from translane_server.core.errors import StartupError
from translane_server.engine.sequence import Task
from translane_server.workers.interface import Replica, ReplicaListener, Report

_log = logging.getLogger(__name__)

_TICK = 1.0  # time between two looks at a replica [seconds]

# A replica that has not answered for so many looks may hang. It is trusted again when it answers.
_RESPONSIVE_TICKS = 2

# A replica that computes, but does not answer, gets this many times as long as one that does nothing. So does the first
# life while it loads the model: it may wait for a slow disk.
_PATIENCE = 10

# A replica that is lost for the first time in this time is replaced at once [seconds]. After the second loss the
# supervisor waits, each time twice as long. Too many losses in this time are not overcome by another process.
_LOSS_WINDOW = 60.0
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 10.0
_MOST_LOSSES = 8


class SupervisedReplica(Replica, Protocol):
    """A replica that can be asked for a sign of life."""

    @property
    def name(self) -> str:
        """The name in log lines."""

    @property
    def heard(self) -> int:
        """The number of messages that have come from the replica."""

    def cpu_time(self) -> int:
        """Processor time that the replica has used, in any unit; 0 if it is not known."""

    def ask(self) -> None:
        """Ask for a sign of life."""

    async def kill(self) -> None:
        """End the replica, which may hang. Its listener learns that it is lost."""


class Supervisor:
    """A replica that comes back. Implements `Replica` for the dispatcher, and `ReplicaListener` for each life.

    Args:
        make: makes a replica, which is not started.
        patience: time after which a replica that neither answers nor computes is replaced [seconds]; 0 waits for ever.
        replaces: whether a lost replica is replaced.
        close: called on a thread when the replica is stopped for good.
        clock: monotonic clock [seconds].
    """

    def __init__(
        self,
        make: Callable[[], SupervisedReplica],
        *,
        patience: float = 0,
        replaces: bool = True,
        close: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._replica = make()
        self._patience = patience
        self._replaces = replaces
        self._close = close
        self._clock = clock
        self._listener: ReplicaListener
        self._losses: deque[float] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._stopping = False
        self._missed = 0  # looks at the present life since its last answer

    @property
    def rows(self) -> int:
        return self._replica.rows

    @property
    def is_responsive(self) -> bool:
        return self._missed <= _RESPONSIVE_TICKS

    async def start(self, listener: ReplicaListener) -> None:
        self._listener = listener
        self._watch(_PATIENCE * self._patience)
        await self._replica.start(self)
        self._missed = 0

    def submit(self, task: Task) -> None:
        self._replica.submit(task)

    def cancel(self, number: int) -> None:
        self._replica.cancel(number)

    async def stop(self) -> None:
        was_stopping, self._stopping = self._stopping, True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._replica.stop()
        if not was_stopping:
            await asyncio.to_thread(self._close)

    # For the replica

    def reported(self, replica: Replica, report: Report) -> None:
        if replica is self._replica:
            self._missed = 0
            self._listener.reported(self, report)

    def lost(self, replica: Replica) -> None:
        if replica is not self._replica or self._stopping:
            return
        if self._watching:
            self._watching.cancel()
        self._listener.lost(self)
        if self._replaces:
            self._run(self._replace())
        else:
            self._listener.given_up(self)

    def returned(self, replica: Replica) -> None:
        """A replica itself never returns."""

    def given_up(self, replica: Replica) -> bool:  # noqa: ARG002
        """A replica itself never gives up."""
        return False

    def _run(self, coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _replace(self) -> None:
        """Start a replica in the place of the lost one, or give up."""
        refusal = ""  # why no replica starts, which the log says once
        while True:
            now = self._clock()
            self._losses.append(now)
            while self._losses[0] < now - _LOSS_WINDOW:
                self._losses.popleft()
            if len(self._losses) > _MOST_LOSSES:
                if not refusal:
                    _log.error(
                        "%s was lost %d times in %g seconds", self._replica.name, len(self._losses), _LOSS_WINDOW
                    )
                if not self._listener.given_up(self):
                    return
            if len(self._losses) > 1:
                await asyncio.sleep(min(_FIRST_DELAY * 2 ** (len(self._losses) - 2), _LONGEST_DELAY))
            lost, self._replica = self._replica, self._make()
            try:
                await lost.stop()  # it has ended, so that two of them never take the memory of two
                self._watch(self._patience)
                await self._replica.start(self)
                break
            except StartupError as error:
                if str(error) != refusal:
                    _log.error("%s does not start again: %s", self._replica.name, error)
                refusal = str(error)
            except Exception:  # noqa: BLE001 such as no thread, or a bug; nobody else would start it
                _log.exception("%s does not start again", self._replica.name)
        self._missed = 0
        _log.warning("%s has been replaced", self._replica.name)
        self._listener.returned(self)

    def _watch(self, loading: float) -> None:
        if self._patience:
            self._watching = self._run(self._watch_life(self._replica, loading))

    async def _watch_life(self, replica: SupervisedReplica, loading: float) -> None:
        """Kill `replica` if it hangs. While it loads the model, it may do nothing for `loading` seconds.

        Time is counted in ticks of this loop, so that a pause of the whole machine is no fault of the replica.
        """
        tick = min(_TICK, self._patience / 4)
        silent = idle = 0.0  # time without an answer, and time without an answer and without computing
        heard = used = -1
        while replica is self._replica:
            self._missed += 1
            if replica.heard != heard:
                self._missed = 0
                silent = idle = 0.0
                heard = replica.heard
                replica.ask()
            elif (now_used := replica.cpu_time()) != used:
                used, idle = now_used, 0.0
            # To load a model may take long, and there is nothing to answer before.
            patience = self._patience if heard else loading
            if idle > patience or (heard and silent > self._patience * _PATIENCE):
                _log.error("%s has not answered for %.0f seconds; it is ended", replica.name, silent)
                await replica.kill()
                return
            await asyncio.sleep(tick)
            silent += tick
            idle += tick
