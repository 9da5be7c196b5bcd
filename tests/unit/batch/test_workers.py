"""All tasks are handed out, and those of lost workers again."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable

import pytest

from translane_batch.errors import BatchError
from translane_batch.tasks import Task
from translane_batch.workers import WorkerLostError, translate_all

TASKS = [Task(0, part, part + 1) for part in range(20)]


class LossyWorkers:
    """Workers that are lost as `lose` says: task, and how often it was begun → whether its worker is lost."""

    def __init__(self, places: int, lose: Callable[[Task, int], bool]) -> None:
        self.places = places
        self.begun: Counter[Task] = Counter()
        self.ended: list[Task] = []
        self.running = self.most_running = 0
        self._lose = lose

    async def translate(self, task: Task, done: Callable[[int], None]) -> None:
        self.begun[task] += 1
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        try:
            await asyncio.sleep(0.001 if task.part == 19 else 0)
            if self._lose(task, self.begun[task]):
                raise WorkerLostError
            self.ended.append(task)
            done(task.sources)
        finally:
            self.running -= 1

    async def close(self) -> None: ...


@pytest.mark.parametrize("places", [1, 3, 30])
async def test_each_task_ends_once_whatever_is_lost(places: int) -> None:
    draw = random.Random(places)
    workers = LossyWorkers(places, lambda _, times: times < 4 and draw.random() < 0.5)
    done: list[int] = []
    await translate_all(TASKS, workers, done.append)
    assert sorted(workers.ended, key=lambda task: task.part) == TASKS
    assert sum(done) == sum(task.sources for task in TASKS)
    assert workers.most_running == min(places, len(TASKS))


async def test_a_task_that_ends_its_workers_ends_the_run() -> None:
    workers = LossyWorkers(3, lambda task, _: task.part == 7)
    with pytest.raises(BatchError, match="5 workers have ended while they translated the same task"):
        await translate_all(TASKS, workers, lambda _: None)
    assert workers.begun[TASKS[7]] == 5
    assert workers.running == 0


async def test_an_error_ends_what_runs() -> None:
    def fails(task: Task, _: int) -> bool:
        if task.part == 3:
            raise BatchError("wrong")
        return False

    workers = LossyWorkers(2, fails)
    with pytest.raises(BatchError, match="wrong"):
        await translate_all(TASKS, workers, lambda _: None)
    assert workers.running == 0
    assert len(workers.ended) < 10
