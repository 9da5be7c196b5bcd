"""Workers of a model beyond its part of the CPUs, which run while other models leave CPUs idle."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from translane_server.core.errors import StartupError
from translane_server.workers.worker import State, Worker

if TYPE_CHECKING:
    from translane_server.workers.dispatcher import Dispatcher

_log = logging.getLogger(__name__)


class SharedCpus:
    """The CPUs that the workers of all models share."""

    def __init__(self, count: int) -> None:
        self.count = count
        # whether a model may use the CPUs of idle ones, because the memory is enough for spare workers
        self.may_be_lent = True
        self._workers: set[Worker] = set()

    def join(self, workers: Sequence[Worker]) -> None:
        """Count these workers from now on."""
        self._workers.update(workers)

    def leave(self, workers: Sequence[Worker]) -> None:
        """Count these workers no more."""
        self._workers.difference_update(workers)

    @property
    def idle(self) -> int:
        """Number of CPUs that no worker with sequences needs; negative if there are more such workers than CPUs."""
        return self.count - sum([worker.threads for worker in self._workers if worker.rows])


@dataclass(eq=False)
class Spares:
    """Wakes spare workers of one model while its other workers are crowded and CPUs are idle, and lets them rest."""

    workers: Sequence[Worker]  # the spare workers, which rest at first
    cpus: SharedCpus  # the CPUs, and the workers of all models that use them
    _: KW_ONLY
    # A spare worker wakes after all other workers have had more than one sentence each for this long [seconds]. A start
    # takes a part of a second of processor time; a short burst is not worth it.
    crowded_seconds: float = 0.5
    look_seconds: float = 10.0  # between two looks at which spare workers have had nothing to do, and may rest
    clock: Callable[[], float] = time.monotonic  # monotonic [seconds]

    def __post_init__(self) -> None:
        self._residents: Sequence[Worker] = ()
        self._crowded_since: float | None = None
        self._used: set[Worker] = set()  # the spare workers that have had sequences since the last look
        self._moving: asyncio.Task[None] | None = None  # wakes a worker, or lets some rest
        self._looking: asyncio.TimerHandle | None = None

    def start(self, residents: Sequence[Worker]) -> None:
        """Count the workers of the model. `residents` are those that always run."""
        self._residents = residents
        self.cpus.join([*residents, *self.workers])

    def stop(self) -> None:
        """Move no worker any more, and count none."""
        self.cpus.leave([*self._residents, *self.workers])
        for each in (self._moving, self._looking):
            if each:
                each.cancel()

    def usable(self, residents: Sequence[Worker]) -> list[Worker]:
        """The spare workers that may get sequences beside these residents: none whose CPU another model needs."""
        found = []
        awake = [worker for worker in self.workers if worker.state is State.UP]
        if awake:
            idle = self.cpus.idle
            left = idle - sum(not worker.rows for worker in residents)  # if these residents get sequences, too
            for worker in awake:
                if worker.rows and idle >= 0:
                    found.append(worker)
                elif not worker.rows and left > 0:
                    left -= 1
                    found.append(worker)
        return found

    def look(self, dispatcher: Dispatcher) -> None:
        """Wake a worker if it is of use. Call it after sequences were sent, or have ended."""
        self._used.update([worker for worker in self.workers if worker.rows])
        if not self._are_crowded():
            self._crowded_since = None
            return
        now = self.clock()
        if self._crowded_since is None:
            self._crowded_since = now
        if now - self._crowded_since < self.crowded_seconds or self._moving or self.cpus.idle <= 0:
            return
        if resting := next((worker for worker in self.workers if worker.state is State.RESTING), None):
            self._moving = asyncio.create_task(self._wake(resting, dispatcher))

    def _are_crowded(self) -> bool:
        """Whether each usable worker has sequences, and one of them more than one."""
        if not self._residents[0].rows:  # most often so where nothing is crowded
            return False
        up = [worker for worker in self._residents if worker.state is State.UP]
        sequences = [len(worker.sequences) for worker in (*up, *self.usable(up))]
        return bool(sequences) and min(sequences) > 0 and max(sequences) > 1

    async def _wake(self, worker: Worker, dispatcher: Dispatcher) -> None:
        try:
            await worker.start(dispatcher)
            self._used.add(worker)
            if self._looking is None:
                self._look_later()
            dispatcher.changed()
        except Exception as error:  # noqa: BLE001 such as no thread; the worker would never be tried again
            name, facts = worker.connection.name, worker.connection.facts
            is_unexpected = not isinstance(error, StartupError)
            _log.warning("%s would be of use, and does not start: %s", name, error, exc_info=is_unexpected, extra=facts)
            await worker.rest()
            await asyncio.sleep(self.look_seconds)
        finally:
            self._moving = None

    def _look_later(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(self.look_seconds, self._let_rest)

    def _let_rest(self) -> None:
        self._looking = None
        unused = [each for each in self.workers if each.state is State.UP and not each.rows and each not in self._used]
        self._used.clear()
        if unused and not self._moving:
            self._moving = asyncio.create_task(self._rest(unused))
        if any(worker.state is not State.RESTING for worker in self.workers):
            self._look_later()

    async def _rest(self, workers: Sequence[Worker]) -> None:
        try:
            for worker in workers:
                if worker.state is State.UP and not worker.rows:
                    await worker.rest()
        finally:
            self._moving = None
