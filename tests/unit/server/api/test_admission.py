"""Who is admitted, and when."""

import asyncio
import socket
import time

import pytest
import uvloop
from grpc_health.v1 import health_pb2 as pb

from fakes.serving import make_settings
from translane_server.api import call as calls
from translane_server.api.admission import Admission, ReadingSlots
from translane_server.api.health import HealthService
from translane_server.core.errors import MessageTimeoutError, RequestTimeoutError
from translane_server.observation.metrics import Metrics

LATER = 60.0  # beyond every patience [seconds]


class Call:
    """A call, and the transport of its message."""

    def __init__(self, connection, slots):
        self.peer = connection
        self.given_up = False
        self.has_slot = False
        self._ends = asyncio.Event()
        self.task = asyncio.create_task(slots.read(self, self))

    async def read(self):
        self.has_slot = True
        try:
            await self._ends.wait()
        finally:
            self.has_slot = False

    async def end(self):
        self._ends.set()
        await self.task


class Reading:
    """Calls around four slots."""

    def __init__(self):
        self.slots = ReadingSlots(4, 1.0, self._give_up)
        self.calls: list[Call] = []

    async def begin(self, *connections):
        begun = [Call(connection, self.slots) for connection in connections]
        self.calls += begun
        await asyncio.sleep(0)
        return begun

    def look(self):
        """Look at the calls when all of them are slow."""
        self.slots.look(time.monotonic() + LATER)

    def _give_up(self, call):
        call.given_up = True
        call.task.cancel()

    async def close(self):
        for call in self.calls:
            call.task.cancel()
        await asyncio.gather(*(call.task for call in self.calls), return_exceptions=True)
        assert (self.slots._free, self.slots._taken, self.slots._waiting, self.slots._reading) == (4, {}, {}, {})


@pytest.fixture
async def reading():
    made = Reading()
    yield made
    await made.close()


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


def slots_of(calls):
    return [call.has_slot for call in calls]


async def test_connections_take_turns_and_the_newest_call_of_each_goes_first(reading):
    calls = await reading.begin("a", "a", "b", "b", "c", "c", "d", "d")
    await calls[0].end()
    await calls[2].end()
    await settle()
    assert slots_of(calls[4:]) == [False, True, False, True]


async def test_a_call_that_is_cancelled_when_its_turn_comes_passes_the_slot_on(reading):
    first, _, waiting, other = await reading.begin("a", "a", "a", "a")
    first._ends.set()
    await asyncio.sleep(0)  # the first has given its slot to the other, which has not run yet
    assert (first.task.done(), other.has_slot) == (True, False)
    other.task.cancel()
    await settle()
    assert (waiting.has_slot, other.has_slot) == (True, False)


async def test_a_slow_call_loses_its_slot_to_one_that_waits(reading):
    slow = await reading.begin("a", "a")
    reading.look()
    assert slots_of(slow) == [True, True]  # nobody waits
    (waiting,) = await reading.begin("a")
    await settle()
    assert ([call.given_up for call in slow], waiting.has_slot) == ([True, False], True)


async def test_a_call_that_waits_gets_the_slot_of_one_that_becomes_slow(reading):
    slow = await reading.begin("a", "a", "b", "b")
    (waiting,) = await reading.begin("c")
    reading.look()
    await settle()
    assert slow[0].given_up
    assert waiting.has_slot


async def test_a_slow_call_keeps_its_slot_where_that_would_help_nobody(reading):
    (other,) = await reading.begin("b")
    reading.look()
    await reading.begin("a", "a", "a")  # the third may have no more slots, and one is free
    await settle()
    assert not other.given_up


async def test_a_free_slot_goes_past_a_connection_whose_calls_are_cancelled(reading):
    ending, *_ = await reading.begin("a", "a", "b", "b")
    (gone,) = await reading.begin("c")
    (waiting,) = await reading.begin("d")
    ending.task.cancel()
    gone.task.cancel()  # it has not run yet when the slot is free
    await settle()
    assert waiting.has_slot


def make_call(**times):
    return calls.Call(calls.Method(Metrics(), "unary", "a.Service", "Method"), (), "ipv4:192.0.2.1:1234", **times)


class Message:
    """A transport whose message comes at any time, or never."""

    expansion = 1

    def __init__(self):
        self.message = asyncio.get_running_loop().create_future()

    async def read(self):
        return await self.message


async def refusal_of(admission, call, transport):
    """Why the server ends a call; None if its message has come."""
    try:
        admission.enter(call)
        await admission.read(call, transport)
    except asyncio.CancelledError:
        return call.refusal
    return None


async def after_a_pause():
    """What becomes of a call whose message comes during a pause of the event loop, and of one whose does not."""
    admission, ready, late = Admission(make_settings(message_timeout=0.2)), Message(), Message()
    calls = [asyncio.create_task(refusal_of(admission, make_call(), transport)) for transport in (ready, late)]
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    (news, busy), (message, sender) = socket.socketpair(), socket.socketpair()

    def pause():
        news.recv(1)
        sender.send(b"1")
        time.sleep(0.4)

    with news, busy, message, sender:
        loop.add_reader(news, pause)
        loop.add_reader(message, lambda: ready.message.set_result(message.recv(1)))
        busy.send(b"1")
        found = await asyncio.gather(*calls)
        loop.remove_reader(news)
        loop.remove_reader(message)
    return found


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_after_a_pause_of_the_event_loop_no_call_is_late_whose_message_has_come(loop):
    with asyncio.Runner(loop_factory=loop) as runner:
        first, second = runner.run(after_a_pause())
    assert first is None
    assert isinstance(second, MessageTimeoutError)


async def test_a_call_that_no_longer_gets_on_ends_before_one_that_has_just_begun():
    admission, now = Admission(make_settings(request_timeout=10, message_timeout=100)), time.monotonic()
    stopped = make_call(started=now - 60, progressed=now - 9.5)  # at the first look it still gets on
    ended = asyncio.create_task(refusal_of(admission, stopped, Message()))
    begun = asyncio.create_task(refusal_of(admission, make_call(), Message()))
    assert isinstance(await asyncio.wait_for(ended, 5), RequestTimeoutError)
    begun.cancel()


def test_nothing_serves_after_the_end():
    health = HealthService()
    health.replace({"": pb.HealthCheckResponse.SERVING})
    health.close()
    health.replace({"": pb.HealthCheckResponse.SERVING})
    assert health.of_server() == "NOT_SERVING"
