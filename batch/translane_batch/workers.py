"""Who translates tasks, and the loop that hands all tasks out, those of lost workers again."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Protocol

from translane_batch.errors import BatchError
from translane_batch.settings import BatchSettings
from translane_batch.tasks import Task
from translane_batch.work_folder import WorkFolder
from translane_batch.worker import TASKS, Worker

_MOST_LOSSES = 5  # workers that may end while they translate the same task


class WorkerLostError(Exception):
    """A worker has ended, or its machine has. The task may be translated by another one."""


class Workers(Protocol):
    """Some workers.

    Attributes:
        places: tasks that are translated at once.
    """

    places: int

    async def translate(self, task: Task, done: Callable[[int], None]) -> None:
        """Translate a task, and write its answers.

        Args:
            task: the task.
            done: called with the number of sources that are translated, as often as some are.

        Raises:
            WorkerLostError: the worker is lost.
            BatchError, TranslaneError, OSError: the task cannot be translated by any worker.
        """

    async def close(self) -> None:
        """End the workers."""


class LocalWorkers:
    """The worker of this process. `open` makes it."""

    places = TASKS

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    @classmethod
    async def open(cls, settings: BatchSettings, work: WorkFolder) -> LocalWorkers:
        """See `Worker.open`."""
        return cls(await Worker.open(settings, work))

    async def translate(self, task: Task, done: Callable[[int], None]) -> None:
        """See `Workers`."""
        await self._worker.translate(task, done)

    async def close(self) -> None:
        """See `Workers`."""
        await self._worker.close()


async def translate_all(tasks: Sequence[Task], workers: Workers, done: Callable[[int], None]) -> None:
    """Translate all tasks.

    Args:
        tasks: the tasks.
        workers: who translates them.
        done: called with the number of sources that are translated, as often as some are.

    Raises:
        BatchError: a task has ended too many workers.
        BatchError, TranslaneError, OSError: see `Workers.translate`.
    """
    waiting = deque(tasks)
    losses = Counter[Task]()

    async def work() -> None:
        while waiting:
            task = waiting.popleft()
            try:
                await workers.translate(task, done)
            except WorkerLostError as error:
                losses[task] += 1
                if losses[task] == _MOST_LOSSES:
                    raise BatchError(
                        f"{_MOST_LOSSES} workers have ended while they translated the same task"
                    ) from error
                waiting.append(task)

    places = [asyncio.create_task(work()) for _ in range(workers.places)]
    try:
        await asyncio.gather(*places)
    finally:
        for place in places:
            place.cancel()
        await asyncio.gather(*places, return_exceptions=True)
