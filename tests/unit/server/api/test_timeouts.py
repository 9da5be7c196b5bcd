"""Many items with one time limit."""

import asyncio

from translane_server.api.timeouts import Timeouts


class Expired:
    """The items that have expired. `all` is set when there are so many as expected."""

    def __init__(self, expected):
        self.items: list[str] = []
        self.all = asyncio.Event()
        self._expected = expected

    def __call__(self, item):
        self.items.append(item)
        if len(self.items) == self._expected:
            self.all.set()


async def test_items_expire_in_the_order_in_which_they_started():
    expired = Expired(2)
    timeouts = Timeouts(0.02, expired)
    timeouts.start("a")
    timeouts.start("b")
    await asyncio.sleep(0.01)
    timeouts.start("c")
    timeouts.stop("b")
    await expired.all.wait()
    assert (expired.items, len(timeouts)) == (["a", "c"], 0)


async def test_items_that_start_after_all_others_have_ended_expire():
    expired = Expired(1)
    timeouts = Timeouts(0.01, expired)
    timeouts.start("a")
    timeouts.stop("a")
    await asyncio.sleep(0.02)
    timeouts.start("b")
    await expired.all.wait()
    assert expired.items == ["b"]


async def test_one_timer_serves_all():
    loop = asyncio.get_running_loop()
    timeouts: Timeouts[int] = Timeouts(60, lambda _: None)
    before = len(loop._scheduled)  # type: ignore[attr-defined]
    for number in range(1000):
        timeouts.start(number)
        timeouts.stop(number - 1)
    assert len(loop._scheduled) - before == 1  # type: ignore[attr-defined]


async def test_what_is_stopped_twice_stays_stopped():
    timeouts: Timeouts[str] = Timeouts(60, lambda _: None)
    timeouts.start("a")
    timeouts.stop("a")
    timeouts.stop("a")
    assert len(timeouts) == 0


async def test_the_oldest():
    timeouts: Timeouts[str] = Timeouts(60, lambda _: None)
    for item in "abc":
        timeouts.start(item)
    assert (timeouts.pop_oldest(0), timeouts.pop_oldest(0), len(timeouts)) == ("a", "b", 1)
    assert (timeouts.pop_oldest(59), len(timeouts)) == (None, 1)
    assert (timeouts.pop_oldest(0), timeouts.pop_oldest(0)) == ("c", None)
