"""Work on texts: at once or on threads, fair between callers, and ended with its caller or with the server."""

import asyncio
import subprocess
import sys
import threading
from unittest.mock import Mock

import pytest

from translane_server.core.budget import UNLIMITED, Budget, WorkEndedError
from translane_server.core.errors import QueueFullError, UnavailableError
from translane_server.translation.tokenizer_pool import TokenizerPool, any_thread_runs

LITTLE, SMALL, LARGE = 1024, 2000, 70_000


class Work:
    """Work that goes on until it is told to end, or until its budget ends."""

    def __init__(self):
        self.started = threading.Event()
        self.may_end = threading.Event()
        self.error = None

    def __call__(self, budget):
        self.started.set()
        try:
            while not self.may_end.wait(0.001):
                budget.check()
        except BaseException as error:
            self.error = error
            raise
        return self

    async def starts(self):
        assert await asyncio.to_thread(self.started.wait, 10)


@pytest.fixture
def make():
    made = []

    def make(*arguments, **named):
        made.append(TokenizerPool(*arguments, **named))
        return made[-1]

    yield make
    for workers in made:
        workers.stop()


def begin(workers, size, work):
    return asyncio.create_task(workers.read(size, work))


async def test_a_thread_that_cannot_start_refuses_one_request(make, monkeypatch):
    pool = make()
    with monkeypatch.context() as system:
        system.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
        for _ in range(3):
            with pytest.raises(UnavailableError, match="no thread"):
                await pool.read(SMALL, lambda _: None)
    assert await pool.read(SMALL, lambda _: "read") == "read"
    with monkeypatch.context() as system:
        system.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
        found = await asyncio.gather(*[pool.build(SMALL, lambda _: "built") for _ in range(3)])
    assert found == ["built"] * 3  # by the thread that there is


async def test_little_work_is_done_at_once_and_other_work_on_threads(make):
    budgets: list[Budget] = []
    await make().read(LITTLE, budgets.append)
    await make().build(LITTLE, budgets.append)
    assert budgets == [UNLIMITED] * 2
    workers = make(1)
    for size in (SMALL, LARGE):
        assert await workers.read(size, lambda _: threading.current_thread().name) == "texts"
        assert await workers.build(size, lambda _: threading.current_thread().name) == "texts"
    for _ in range(2):  # the thread goes on
        with pytest.raises(KeyError):
            await workers.read(SMALL, Mock(side_effect=KeyError("x")))


async def test_large_work_leaves_a_thread_to_other_work(make):
    workers, large = make(2), [Work(), Work()]
    tasks = [begin(workers, LARGE, work) for work in large]
    await large[0].starts()
    assert await workers.read(SMALL, lambda _: "done") == "done"
    assert not large[1].started.is_set()
    large[0].may_end.set()
    large[1].may_end.set()
    assert await asyncio.gather(*tasks) == large


async def test_the_size_of_what_waits_has_a_limit(make):
    workers, first = make(1, waiting_bytes=2 * SMALL), Work()
    tasks = [begin(workers, SMALL, first)]
    await first.starts()
    tasks += [begin(workers, SMALL, lambda _: None) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(QueueFullError, match="4000 bytes of requests wait") as caught:
        await workers.read(SMALL, lambda _: None)
    assert caught.value.retry_after > 0
    answer = asyncio.create_task(workers.build(LARGE, lambda _: "built"))  # what is decoded is not refused
    first.may_end.set()
    await asyncio.gather(*tasks)
    assert await answer == "built"
    assert await workers.read(2 * SMALL, lambda _: "room") == "room"


async def test_the_work_of_a_caller_who_has_gone_ends(make):
    workers, running, waiting = make(1, waiting_bytes=SMALL), Work(), Work()
    tasks = [begin(workers, SMALL, running)]
    await running.starts()
    tasks.append(begin(workers, SMALL, waiting))
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert all(task.cancelled() for task in tasks)
    assert await workers.read(SMALL, lambda _: "next") == "next"
    assert isinstance(running.error, WorkEndedError)
    assert not waiting.started.is_set()


async def test_reading_has_a_time_and_building_has_none(make):
    workers = make(1, reading_time=7)
    assert (await workers.read(SMALL, lambda budget: budget)).seconds == 7
    assert (await workers.build(SMALL, lambda budget: budget)).seconds == float("inf")


async def test_stopping_ends_all_work(make):
    workers, running, waiting = make(1), Work(), Work()
    tasks = [begin(workers, SMALL, work) for work in (running, waiting)]
    await running.starts()
    workers.stop()
    for task in tasks:
        with pytest.raises(UnavailableError):
            await task
    with pytest.raises(UnavailableError):
        await workers.read(SMALL, lambda _: None)
    assert await workers.read(LITTLE, lambda _: "at once") == "at once"
    while any_thread_runs():  # noqa: ASYNC110 nobody tells
        await asyncio.sleep(0.001)
    assert isinstance(running.error, WorkEndedError)
    assert not waiting.started.is_set()


SERVER = """
import asyncio, sys, threading, time
from translane_server.app import command
from translane_server.app import lifetime
from translane_server.translation.tokenizer_pool import TokenizerPool

async def serve():
    workers = TokenizerPool(1)
    started = threading.Event()
    def work(_):
        started.set()
        time.sleep(1000)
    task = asyncio.create_task(workers.read(5000, work))
    await asyncio.to_thread(started.wait)
    workers.stop()
    await asyncio.gather(task, return_exceptions=True)

def run(settings, environ):
    asyncio.run(serve())
    print("ended")
    return 3

lifetime.run = run
sys.exit(command.serve(sys.argv[1:], {}))
"""


def test_the_exit_waits_for_no_thread():
    ended = subprocess.run([sys.executable, "-c", SERVER, "model"], capture_output=True, text=True, timeout=50)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "ended\n", "")


async def done_in_order(workers, *works):
    """The names of works, of which each has a size and a caller, as one thread does them."""
    order: list[str] = []
    running = Work()
    calls = [begin(workers, SMALL, running)]
    await running.starts()
    for name, size, caller in works:
        calls.append(asyncio.create_task(workers.read(size, lambda _budget, name=name: order.append(name), caller)))
        await asyncio.sleep(0)
    assert not order
    running.may_end.set()
    await asyncio.gather(*calls)
    return order


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_callers_share_the_threads(make, size):
    order = await done_in_order(make(1), *((caller, size, caller) for caller in ["many"] * 20 + ["few"] * 2))
    assert order[:4].count("few") == 2
    assert len(order) == 22


async def test_large_and_small_work_take_turns(make):
    order = await done_in_order(make(1), *((str(size), size, "a") for size in [SMALL] * 5 + [LARGE] * 5))
    assert sorted(order[:4]) == sorted([str(SMALL), str(LARGE)] * 2)
