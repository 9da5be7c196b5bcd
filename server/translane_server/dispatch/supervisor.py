"""Keeps a replica or a front end running: notices that its process is lost or hangs, and starts another one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from translane_server.errors import StartupError
from translane_server.replica.interface import Replica, ReplicaListener, Report
from translane_server.sentence import Task

_log = logging.getLogger(__name__)

_TICK = 1.0  # time between two looks at a process [seconds]

# A process that has not answered for so many looks may hang. It is trusted again when it answers.
_RESPONSIVE_TICKS = 2

# A process that computes, but does not answer, gets this many times as long as one that does nothing. So does the first
# process while it loads the model: it may wait for a slow disk.
_PATIENCE = 10

# A process that is lost for the first time in this time is replaced at once [seconds]. After the second loss the
# supervisor waits, each time twice as long. Too many losses in this time are not overcome by another process.
_LOSS_WINDOW = 60.0
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 10.0
_MOST_LOSSES = 8


class SupervisedProcess(Protocol):
    """A process that can be asked for a sign of life."""

    @property
    def name(self) -> str:
        """The name in log lines."""

    @property
    def heard(self) -> int:
        """The number of messages that have come from the process."""

    def cpu_time(self) -> int:
        """Processor time that the process has used, in any unit; 0 if it is not known."""

    def ask(self) -> None:
        """Ask for a sign of life."""

    async def start(self, listener: Any) -> None:
        """Start the process, and wait until it is ready. The listener learns that it is `lost`.

        Raises:
            StartupError: the process cannot start.
        """

    async def kill(self) -> None:
        """End the process, which may hang. Its listener learns that it is lost."""

    async def stop(self) -> None:
        """End the process."""


class SupervisedReplica(Replica, SupervisedProcess, Protocol):
    """A replica as the supervisor sees it."""


ProcessT = TypeVar("ProcessT", bound=SupervisedProcess)


class ProcessSupervisor(Generic[ProcessT]):
    """A process that comes back. Its listener learns that it is `lost`, has `returned` or is `given_up`.

    Args:
        make: makes a process, which is not started.
        patience: time after which a process that neither answers nor computes is replaced [seconds]; 0 waits for ever.
        replaces: whether a lost process is replaced.
        close: called on a thread when the process is stopped for good.
        clock: monotonic clock [seconds].
    """

    def __init__(
        self,
        make: Callable[[], ProcessT],
        *,
        patience: float = 0,
        replaces: bool = True,
        close: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._process = make()
        self._patience = patience
        self._replaces = replaces
        self._close = close
        self._clock = clock
        self._listener: Any
        self._losses: deque[float] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._stopping = False
        self._lets_end = False
        self._missed = 0  # looks at the present process since its last answer

    @property
    def is_responsive(self) -> bool:
        return self._missed <= _RESPONSIVE_TICKS

    async def start(self, listener: Any) -> None:
        self._listener = listener
        self._watch(_PATIENCE * self._patience)
        await self._process.start(self)
        self._missed = 0

    def let_end(self) -> None:
        """Let the process end by itself: nothing is started in its place, and the listener learns nothing more."""
        self._lets_end = True
        for task in self._tasks:
            task.cancel()

    async def stop(self) -> None:
        was_stopping, self._stopping = self._stopping, True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._process.stop()
        if not was_stopping:
            await asyncio.to_thread(self._close)

    def lost(self, process: ProcessT) -> None:
        """The process has ended, though it was not stopped."""
        if process is not self._process or self._stopping or self._lets_end:
            return
        if self._watching:
            self._watching.cancel()
        self._listener.lost(self)
        if self._replaces:
            self._run(self._replace())
        else:
            self._listener.given_up(self)

    def _run(self, coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _replace(self) -> None:
        """Start a process in the place of the lost one, or give up."""
        refusal = ""  # why no process starts, which the log says once
        while True:
            now = self._clock()
            self._losses.append(now)
            while self._losses[0] < now - _LOSS_WINDOW:
                self._losses.popleft()
            if len(self._losses) > _MOST_LOSSES:
                if not refusal:
                    _log.error(
                        "%s was lost %d times in %g seconds", self._process.name, len(self._losses), _LOSS_WINDOW
                    )
                if not self._listener.given_up(self):
                    return
            if len(self._losses) > 1:
                await asyncio.sleep(min(_FIRST_DELAY * 2 ** (len(self._losses) - 2), _LONGEST_DELAY))
            lost, self._process = self._process, self._make()
            try:
                await lost.stop()  # it has ended, so that two of them never take the memory of two
                self._watch(self._patience)
                await self._process.start(self)
                break
            except StartupError as error:
                if str(error) != refusal:
                    _log.error("%s does not start again: %s", self._process.name, error)
                refusal = str(error)
            except Exception:  # noqa: BLE001 such as no thread, or a bug; nobody else would start it
                _log.exception("%s does not start again", self._process.name)
        self._missed = 0
        _log.warning("%s has been replaced", self._process.name)
        self._listener.returned(self)

    def _watch(self, loading: float) -> None:
        if self._patience:
            self._watching = self._run(self._watch_process(self._process, loading))

    async def _watch_process(self, process: ProcessT, loading: float) -> None:
        """Kill `process` if it hangs. While it loads the model, it may do nothing for `loading` seconds.

        Time is counted in ticks of this loop, so that a pause of the whole machine is no fault of the process.
        """
        tick = min(_TICK, self._patience / 4)
        silent = idle = 0.0  # time without an answer, and time without an answer and without computing
        heard = used = -1
        while process is self._process:
            self._missed += 1
            if process.heard != heard:
                self._missed = 0
                silent = idle = 0.0
                heard = process.heard
                process.ask()
            elif (now_used := process.cpu_time()) != used:
                used, idle = now_used, 0.0
            # To load a model may take long, and there is nothing to answer before.
            patience = self._patience if heard else loading
            if idle > patience or (heard and silent > self._patience * _PATIENCE):
                _log.error("%s has not answered for %.0f seconds; it is ended", process.name, silent)
                await process.kill()
                return
            await asyncio.sleep(tick)
            silent += tick
            idle += tick


class Supervisor(ProcessSupervisor[SupervisedReplica]):
    """A replica that comes back. Implements `Replica` for the dispatcher, and `ReplicaListener` for each life.

    See `ProcessSupervisor` for its arguments.
    """

    _listener: ReplicaListener

    @property
    def rows(self) -> int:
        return self._process.rows

    def submit(self, task: Task) -> None:
        self._process.submit(task)

    def cancel(self, number: int) -> None:
        self._process.cancel(number)

    # For the replica

    def reported(self, replica: Replica, report: Report) -> None:
        if replica is self._process:
            self._missed = 0
            self._listener.reported(self, report)

    def returned(self, replica: Replica) -> None:
        """A replica itself never returns."""

    def given_up(self, replica: Replica) -> bool:  # noqa: ARG002
        """A replica itself never gives up."""
        return False
