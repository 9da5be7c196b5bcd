"""Slots for calls that receive their messages."""

import asyncio
import time

import pytest

from translane_server.api.reading_slots import ReadingSlots


class Call:
    def __init__(self, connection, slots):
        self.connection = connection
        self.given_up = False
        self.has_slot = False
        self._slots = slots
        self._ends = asyncio.Event()
        self.task = asyncio.create_task(self._receive())

    async def _receive(self):
        await self._slots.take(self)
        self.has_slot = True
        try:
            await self._ends.wait()
        finally:
            self.has_slot = False
            self._slots.release(self)

    async def end(self):
        self._ends.set()
        await self.task


class Reading:
    """Calls around four slots."""

    def __init__(self, patience=60.0):
        self.slots: ReadingSlots[Call] = ReadingSlots(4, patience, self._give_up)
        self.calls: list[Call] = []

    async def begin(self, *connections):
        begun = [Call(connection, self.slots) for connection in connections]
        self.calls += begun
        await asyncio.sleep(0)
        return begun

    def _give_up(self, call):
        call.given_up = True
        call.task.cancel()

    async def close(self):
        for call in self.calls:
            call.task.cancel()
        await asyncio.gather(*(call.task for call in self.calls), return_exceptions=True)
        assert (self.slots._free, self.slots._taken, self.slots._waiting, self.slots._slow) == (4, {}, {}, {})
        assert len(self.slots._fresh) == 0


@pytest.fixture
async def reading():
    made: list[Reading] = []

    def make(**options):
        made.append(Reading(**options))
        return made[-1]

    yield make
    for each in made:
        await each.close()


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


def slots_of(calls):
    return [call.has_slot for call in calls]


async def test_a_connection_has_half_of_the_slots(reading):
    calls = await reading().begin("a", "a", "a", "b", "b", "b", "c")
    assert slots_of(calls) == [True, True, False, True, True, False, False]


async def test_the_newest_call_of_a_connection_goes_first(reading):
    first, _, older, newer = await reading().begin("a", "a", "a", "a")
    await first.end()
    await settle()
    assert (older.has_slot, newer.has_slot) == (False, True)


async def test_connections_take_turns(reading):
    calls = await reading().begin("a", "a", "b", "b", "c", "c", "d", "d")
    await calls[0].end()
    await calls[2].end()
    await settle()
    assert slots_of(calls[4:]) == [False, True, False, True]


async def test_a_call_that_is_cancelled_while_it_waits_leaves_the_queue(reading):
    first, _, waiting, other = await reading().begin("a", "a", "a", "a")
    other.task.cancel()
    await first.end()  # before the cancelled one has run
    await settle()
    assert (waiting.has_slot, other.has_slot) == (True, False)


async def test_a_call_that_is_cancelled_when_its_turn_comes_passes_the_slot_on(reading):
    first, _, waiting, other = await reading().begin("a", "a", "a", "a")
    first._ends.set()
    await asyncio.sleep(0)  # the first has given its slot to the other, which has not run yet
    assert (first.task.done(), other.has_slot) == (True, False)
    other.task.cancel()
    await settle()
    assert (waiting.has_slot, other.has_slot) == (True, False)


async def test_a_slow_call_loses_its_slot_to_one_that_waits(reading):
    some = reading(patience=0.02)
    slow = await some.begin("a", "a")
    await asyncio.sleep(0.04)
    assert slots_of(slow) == [True, True]  # nobody waits
    (waiting,) = await some.begin("a")
    await settle()
    assert ([call.given_up for call in slow], waiting.has_slot) == ([True, False], True)


async def test_a_call_that_waits_gets_the_slot_of_one_that_becomes_slow(reading):
    some = reading(patience=0.02)
    slow = await some.begin("a", "a", "b", "b")
    (waiting,) = await some.begin("c")
    await asyncio.sleep(0.04)
    await settle()
    assert slow[0].given_up
    assert waiting.has_slot


async def test_a_slow_call_keeps_its_slot_where_that_would_help_nobody(reading):
    some = reading(patience=0.02)
    (other,) = await some.begin("b")
    await asyncio.sleep(0.04)
    await some.begin("a", "a", "a")  # the third may have no more slots, and one is free
    await settle()
    assert not other.given_up


async def test_after_a_pause_of_the_event_loop_no_call_is_slow_whose_message_has_come(reading):
    some = reading(patience=0.02)
    ready, slow = await some.begin("a", "a")
    await some.begin("a")
    asyncio.get_running_loop().call_soon(ready._ends.set)
    time.sleep(0.04)  # noqa: ASYNC251 it pauses the event loop
    await settle()
    assert (ready.given_up, slow.given_up) == (False, False)
    await asyncio.sleep(0.04)
    assert slow.given_up is False  # a slot was free for the one that waited


async def test_a_free_slot_goes_past_a_connection_whose_calls_are_cancelled(reading):
    some = reading()
    ending, *_ = await some.begin("a", "a", "b", "b")
    (gone,) = await some.begin("c")
    (waiting,) = await some.begin("d")
    ending.task.cancel()
    gone.task.cancel()  # it has not run yet when the slot is free
    await settle()
    assert waiting.has_slot
