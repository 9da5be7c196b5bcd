"""Workers that come back: who is replaced when, how often, and what the dispatcher is told."""

import asyncio
import itertools
import random
import time
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from helpers.http_calls import until
from translane_server.core.errors import StartupError
from translane_server.engine.sequence import EngineOutput
from translane_server.observation.logs import data
from translane_server.workers import worker as workers
from translane_server.workers.__main__ import _open
from translane_server.workers.worker import State, Worker


class Life:
    """One life of a worker; tests say what becomes of it."""

    rows = 4
    name = "replica 7"
    facts = data(model="m")

    def __init__(self, refusal=None):
        self.refusal = refusal
        self.heard = 1
        self.asked = 0
        self.used = 0
        self.answers = True
        self.ended = self.stopped = False

    async def start(self, on_output, on_loss):
        self.on_loss = on_loss
        if self.refusal:
            raise self.refusal

    async def stop(self):
        self.stopped = True

    async def kill(self):
        self.end()

    def end(self):
        self.ended = True
        self.on_loss(self)

    def ask(self):
        self.asked += 1
        if self.answers:
            self.heard += 1

    def cpu_time(self):
        return self.used


class Lives(list[Any]):
    """Makes lives, and keeps them in order."""

    def __init__(self, *refusals):
        super().__init__()
        self.refusals = list(refusals)

    def __call__(self):
        self.append(Life(self.refusals.pop(0) if self.refusals else None))
        return self[-1]


class Listener:
    def __init__(self):
        self.news = []

    def received(self, worker, output):
        self.news.append(output)

    def lost(self, worker):
        self.lost_one = worker
        self.news.append("lost")
        return True

    def changed(self):
        self.news.append("returned" if self.lost_one.state is State.UP else "failing")


@pytest.fixture
def listener():
    return Listener()


@pytest.fixture
async def start(listener):
    """Starts a worker; returns it and its lives."""
    workers: list[Worker] = []

    async def started(*refusals, **settings):
        lives = Lives(*refusals)
        workers.append(Worker(lives, **settings))
        await workers[-1].start(listener)
        return workers[-1], lives

    yield started
    for worker in workers:
        await worker.stop()


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(workers, "_FIRST_DELAY", 0.0)


async def test_many_losses_in_a_row_are_told_and_a_life_that_lasts_ends_the_row(start, listener, monkeypatch):
    monkeypatch.setattr(workers, "_MOST_LOSSES", 3)
    now, losses = [0.0], []
    worker, lives = await start(count_loss=lambda: losses.append(1), clock=lambda: now[0])

    async def lose(times, after):
        for _ in range(times):
            now[0] += after
            lives[-1].end()
            await until(lambda: listener.news[-1] == "returned")

    await lose(20, after=61)
    assert "failing" not in listener.news
    await lose(5, after=30)
    assert listener.news.count("failing") == 3
    ended: list[Any] = [(1, None)]
    worker.received(lives[-1], EngineOutput(ended=ended))
    await lose(3, after=0)
    assert listener.news.count("failing") == 3
    assert len(losses) == 28


async def test_a_replica_that_nothing_starts_for_is_tried_for_ever(start, listener, monkeypatch, caplog):
    """Nothing is cleaned up after the first one either. The log has each reason once."""
    monkeypatch.setattr(workers, "_MOST_LOSSES", 3)
    refusals = [StartupError(why) for why in ("no memory", *["no file"] * 6)]
    losses: list[int] = []
    no_thread = RuntimeError("can't start new thread")
    _, lives = await start(None, None, no_thread, *refusals, count_loss=lambda: losses.append(1))

    async def fails():
        raise no_thread

    lives[0].stop = fails
    lives[0].end()
    await until(lambda: listener.news[-1] == "returned")
    assert listener.news == ["lost", *["failing"] * 7, "returned"]
    assert len(losses) == 10
    assert caplog.messages == [
        *["replica 7 does not start again"] * 2,
        "replica 7 does not start again: no memory",
        "replica 7 was lost 4 times in a row; it is tried again",
        "replica 7 does not start again: no file",
        "replica 7 has been replaced",
    ]


async def test_a_silent_replica_is_ended_and_replaced(start, listener, caplog):
    _, lives = await start(patience=0.08)
    await until(lambda: lives[0].asked > 5)
    assert listener.news == []
    lives[0].answers = False
    await until(lambda: listener.news == ["lost", "returned"])
    assert lives[0].ended
    assert "replica 7 has not answered for 0 seconds; it is ended" in caplog.messages
    assert not lives[1].ended


async def test_a_replica_that_misses_an_answer_is_not_responsive_until_it_answers(start):
    worker, lives = await start(patience=0.4)
    await until(lambda: lives[0].asked > 2)
    assert worker.is_responsive
    lives[0].answers = False
    await until(lambda: not worker.is_responsive)
    worker.received(lives[0], EngineOutput())
    assert worker.is_responsive
    lives[0].answers = True
    lives[0].heard += 1


async def test_a_silent_replica_that_computes_gets_longer(start):
    _, lives = await start(patience=0.04)
    lives[0].answers = False
    silent = 0
    while not lives[0].ended:
        lives[0].used += 1
        silent += 1
        await asyncio.sleep(0.01)
        assert silent < 500
    assert silent > 20, "several times its patience"


async def test_a_pause_of_the_whole_machine_is_no_fault_of_the_replica(listener):
    lives = Lives()
    worker = Worker(lives, patience=0.8)
    lives[0].answers = False
    await worker.start(listener)
    await asyncio.sleep(0.25)  # a look, and another one
    time.sleep(1)  # noqa: ASYNC251 the replica pauses, too
    await asyncio.sleep(0.01)
    assert not lives[0].ended
    await worker.stop()


async def test_a_replica_that_hangs_while_it_loads_for_the_first_time_does_not_start(listener):
    lives = Lives()
    worker = Worker(lives, patience=0.02)
    lives[0].heard, lives[0].answers = 0, False
    killed = asyncio.get_running_loop().create_future()

    async def start(on_output, on_loss):
        raise await killed

    async def kill():
        killed.set_result(StartupError("it was ended"))

    lives[0].start, lives[0].kill = start, kill
    starting = asyncio.create_task(worker.start(listener))
    await asyncio.sleep(0.1)  # it may wait for a disk
    assert not starting.done()
    async with asyncio.timeout(10):
        with pytest.raises(StartupError, match="it was ended"):
            await starting
    assert listener.news == []
    await worker.stop()


async def test_a_replica_that_still_loads_is_not_silent(start):
    _, lives = await start(patience=0.04)
    lives[0].answers = False
    lives[0].heard = 0
    for _ in range(80):
        lives[0].used += 1
        await asyncio.sleep(0.01)
    assert not lives[0].ended


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_happens_the_listener_knows_whether_the_worker_is_up(seed, monkeypatch, caplog):
    """Lives break at any time, refuse to start, or break at once; results come, and at last the worker is stopped.

    Each life is stopped before the next one starts, and what a former one says does not count.
    """
    monkeypatch.setattr(workers, "_LONGEST_DELAY", 0.001)
    monkeypatch.setattr(workers, "_MOST_LOSSES", 3)
    pick = random.Random(seed)

    class Unsteady(Life):
        async def start(self, on_output, on_loss):
            self.on_loss = on_loss
            assert all(life.stopped for life in lives if life is not self)
            await asyncio.sleep(0)
            what = pick.choice(["starts", "starts", "refuses", "breaks"]) if lives[1:] else "starts"
            if what == "refuses":
                raise StartupError("no memory")
            if what == "breaks":
                self.end()

    lives: list[Any] = []

    def connect():
        lives.append(Unsteady())
        return lives[-1]

    listener: Any = Listener()
    closed: list[bool] = []
    worker = Worker(connect, on_stopped=lambda: closed.append(True))
    await worker.start(listener)
    for _ in range(30):
        event = pick.choice(["break", "result", "former life", "wait"])
        if event == "break" and worker.state is State.UP:
            lives[-1].end()
        elif event == "result":
            ended: list[Any] = [(1, None)] if pick.random() < 0.5 else []
            output = EngineOutput(ended=ended)
            worker.received(lives[-1], output)
            assert listener.news[-1] is output
        elif event == "former life":
            former, state = pick.choice(lives[:-1] or [Life()]), worker.state
            worker.broken(former)
            assert worker.state is state
            worker.received(former, output := EngineOutput(dropped=[7]))
            assert output not in listener.news
        else:
            await until(lambda: worker.state is State.UP)
        assert not (worker.state is State.UP and lives[-1].ended)
        told = [each for each in listener.news if isinstance(each, str)]
        assert (worker.state is State.UP) == (not told or told[-1] == "returned")
    assert not closed
    await worker.stop()
    assert closed
    assert lives[-1].stopped
    lives[-1].end()
    await asyncio.sleep(0.01)
    assert worker.state is State.STOPPED
    told = [each for each in listener.news if isinstance(each, str)]
    assert all(second != "lost" or first == "returned" for first, second in itertools.pairwise(told))


@pytest.mark.parametrize(("cuda", "backend"), [(None, "ort.OrtBackend"), (object(), "cuda.backend.CudaBackend")])
def test_each_device_has_its_backend_of_the_sizes_asked_for(cuda, backend, monkeypatch):
    opened, sessions = Mock(), Mock(cuda=cuda)
    monkeypatch.setattr(f"translane_server.runtime.{backend}", opened)
    setup: Any = SimpleNamespace(rows=3, model=SimpleNamespace(source_capacity=5, target_capacity=7))
    _open(setup, sessions)
    sizes: dict[str, Any] = {"rows": 3, "source_capacity": 5, "target_capacity": 7}
    opened.assert_called_once_with(sessions, **sizes, **({} if cuda else {"all_threads": None}))
