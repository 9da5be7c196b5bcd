"""Workers of Ray that are lost, that cannot start, and that come back; without a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from unit.batch.fake_workers import settings_of

from translane_batch.errors import BatchError
from translane_batch.tasks import Task
from translane_batch.workers import translate_all

ray_workers = pytest.importorskip("translane_batch.ray_workers")

TASKS = [Task(0, part, 1) for part in range(12)]
Act = Callable[["FakeActor", Any], Any]


class Method:
    def __init__(self, call: Callable[..., Awaitable[Any]]) -> None:
        self._call = call

    def remote(self, *arguments: Any) -> Awaitable[Any]:
        return self._call(*arguments)


class FakeActor:
    """An actor. `start` and `act` say what its methods return, or raise."""

    def __init__(self, number: int, start: Callable[[int], Any], act: Act) -> None:
        self.number, self.killed, self.tasks = number, False, 0
        self._start, self._act = start, act
        self.open = Method(self._open)
        self.translate = Method(self._translate)
        self.close = Method(self._close)

    async def _open(self) -> Any:
        await asyncio.sleep(0)
        return self._start(self.number)

    async def _close(self) -> None:
        await asyncio.sleep(0)

    async def _translate(self, task: Task) -> Any:
        await asyncio.sleep(0)
        if self.killed:
            raise ray_workers.RayActorError
        self.tasks += 1
        return self._act(self, task)


class Cluster:
    """A cluster in place of the module ray."""

    def __init__(self, start: Callable[[int], Any], act: Act) -> None:
        self.actors: list[FakeActor] = []
        self.is_down = False
        self.log: list[str] = []
        self._start, self._act = start, act

    def make(self) -> FakeActor:
        self.actors.append(FakeActor(len(self.actors), self._start, self._act))
        return self.actors[-1]

    def kill(self, actor: FakeActor) -> None:
        actor.killed = True

    def shutdown(self) -> None:
        self.is_down = True


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Cluster]:
    def make(start: Callable[[int], Any] = lambda _: None, act: Act = lambda *_: None) -> Cluster:
        made = Cluster(start, act)
        monkeypatch.setattr(ray_workers, "ray", made)
        return made

    return make


async def translated(cluster: Cluster, workers: int = 2) -> int:
    """Translate all tasks; return the number of sources."""
    done: list[int] = []
    pool = ray_workers.RayWorkers(cluster.make, workers, cluster.log.append)
    try:
        await asyncio.wait_for(translate_all(TASKS, pool, done.append), 10)
    finally:
        await pool.close()
    assert cluster.is_down
    assert all(actor.killed for actor in cluster.actors)
    return sum(done)


async def test_actors_that_are_lost_while_they_start_are_started_again(cluster: Callable[..., Cluster]) -> None:
    def start(number: int) -> None:
        if number < 4:
            raise ray_workers.RayActorError

    assert await translated(cluster(start)) == len(TASKS)


async def test_a_worker_that_cannot_start_is_given_up_and_the_last_one_is_missed(
    cluster: Callable[..., Cluster],
) -> None:
    def start(number: int) -> Any:
        return ray_workers._Failure("machine 1: another model there") if number == 0 else None

    made = cluster(start)
    assert await translated(made) == len(TASKS)
    assert made.log == ["a worker is given up: machine 1: another model there"]
    with pytest.raises(BatchError, match="machine 1: another model there"):
        await translated(cluster(start), workers=1)

    def lost(_: int) -> None:
        raise ray_workers.RayActorError

    with pytest.raises(BatchError, match="a worker has ended 5 times while it started"):
        await translated(cluster(lost))


async def test_what_no_worker_can_do_ends_the_run(cluster: Callable[..., Cluster]) -> None:
    def act(_: FakeActor, task: Task) -> Any:
        return ray_workers._Failure("the disk is full", 1) if task.part == 5 else None

    with pytest.raises(BatchError, match="the disk is full"):
        await translated(cluster(act=act))


@pytest.mark.parametrize(
    ("changes", "machines", "expected"),
    [
        ({}, [2], (2, 1)),
        ({}, [8, 4, 0, 10], (4, 5)),
        ({"cpus_per_worker": 3}, [8, 4], (3, 3)),
        ({"workers": 7}, [8, 4], (4, 7)),
    ],
)
def test_cpus_are_divided_among_workers(changes: Any, machines: list[int], expected: tuple[int, int]) -> None:
    assert ray_workers._division(settings_of(ray="auto", **changes), machines) == expected


def test_paths_hold_for_workers_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sent(model: str, cache: str | None = None) -> tuple[str, Path | None]:
        settings = settings_of(model=model, ray="auto", model_cache=Path(cache) if cache else None)
        changed = ray_workers._for_other_processes(settings)
        return changed.model, changed.model_cache

    monkeypatch.chdir(tmp_path)
    assert sent("m", "cache") == (str(tmp_path / "m"), tmp_path / "cache")
    url = "s3://models/zh-en@sha256:" + "0" * 64
    assert sent(url, "~/cache") == (url, Path("~/cache"))
    assert sent(url) == (url, None)


def test_more_cpus_than_a_machine_has_are_refused() -> None:
    settings = settings_of(ray="auto", cpus_per_worker=9)
    with pytest.raises(BatchError, match="no machine of the cluster has 9 CPUs"):
        ray_workers._division(settings, [8])
    with pytest.raises(BatchError, match="has no CPUs"):
        ray_workers._division(settings, [0])
