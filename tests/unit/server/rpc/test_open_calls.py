"""Limits on open calls, without gRPC."""

import asyncio
from contextlib import suppress
from typing import Any

import grpc
import pytest

from translane_server.errors import (
    InvalidRequestError,
    MessageTimeoutError,
    MessageTooLargeError,
    RequestError,
    TooManyBytesError,
    TooManyCallsError,
)
from translane_server.rpc.open_calls import _PROBES, READING, CallLimits, OpenCalls

EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # missing from the stubs


class Context:
    """Gives one message when it is told to."""

    def __init__(self, message=EOF):
        self.message = message
        self.may_come = asyncio.Event()

    async def read(self):
        await self.may_come.wait()
        return self.message


class Calls:
    """Calls that stay open until the test ends."""

    def __init__(self, **limits):
        self.open_calls = OpenCalls(CallLimits(**limits))
        self.tasks: list[asyncio.Task[None]] = []
        self.entered: list[Any] = []
        self._over = asyncio.Event()

    async def open(self, caller="a", message: bytes | None = b"", **kind):
        """Open a call, and raise what refuses it. Without a message it waits for one."""
        outcome = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._call(caller, message, kind, outcome))
        self.tasks.append(task)
        if message is None:
            await asyncio.sleep(0)
        else:
            await outcome

    async def _call(self, caller, message, kind, outcome):
        try:
            call = self.open_calls.enter(caller, caller, **kind)
            self.entered.append(call)
            context: Any = Context(message)
            if message is not None:
                context.may_come.set()
            await self.open_calls.first_message(call, context)
            outcome.set_result(None)
        except (RequestError, asyncio.CancelledError) as error:
            if not outcome.done():
                outcome.set_exception(error)
                outcome.exception()  # it is not always awaited
            return
        await self._over.wait()

    async def close(self):
        for task in self.tasks:
            task.cancel()
        for task in self.tasks:
            with suppress(asyncio.CancelledError):
                await task
        await asyncio.sleep(0)


@pytest.fixture
async def opened():
    made = []

    def make(**limits):
        made.append(Calls(**limits))
        return made[-1]

    yield make
    for calls in made:
        await calls.close()
        assert (calls.open_calls.count, calls.open_calls.size, calls.open_calls._callers) == (0, 0, {})


async def test_all_calls_together(opened):
    calls = opened(calls=3, caller_share=1.0)
    for caller in "abc":
        await calls.open(caller)
    with pytest.raises(TooManyCallsError, match="as many calls are open as this server takes"):
        await calls.open("d")
    assert calls.open_calls.count == 3


async def test_one_caller_leaves_calls_to_others(opened):
    calls = opened(calls=4, caller_share=0.5)
    await calls.open("a")
    await calls.open("a")
    with pytest.raises(TooManyCallsError, match="of this caller"):
        await calls.open("a")
    await calls.open("b")
    assert calls.open_calls.count == 3


async def test_a_call_that_ends_makes_room(opened):
    calls = opened(calls=1)
    await calls.open()
    await calls.close()
    await calls.open()
    assert calls.open_calls.count == 1


async def test_health_is_answered_on_a_busy_server(opened):
    calls = opened(calls=2, caller_share=0.5)
    await calls.open("a")
    await calls.open("b")
    for _ in range(_PROBES):
        await calls.open("a", probe=True)
    with pytest.raises(TooManyCallsError):
        await calls.open("a", probe=True)


async def test_bytes_of_all_calls(opened):
    calls = opened(message_bytes=40, bytes_in_flight=100, caller_share=1.0)
    await calls.open("a", b"x" * 40)
    await calls.open("b", b"x" * 40)
    with pytest.raises(TooManyBytesError, match="as this server takes"):
        await calls.open("c", b"x" * 21)
    await calls.open("c", b"x" * 20)
    assert calls.open_calls.size == 100


async def test_bytes_of_one_caller(opened):
    calls = opened(message_bytes=40, bytes_in_flight=100, caller_share=0.5)
    await calls.open("a", b"x" * 40)
    with pytest.raises(TooManyBytesError, match="40 bytes, and 50 are allowed"):
        await calls.open("a", b"x" * 11)
    await calls.open("b", b"x" * 11)
    assert calls.open_calls.size == 51


async def test_a_message_too_large(opened):
    calls = opened(message_bytes=40)
    with pytest.raises(MessageTooLargeError, match="41 bytes, and 40 are allowed"):
        await calls.open("a", b"x" * 41)
    await calls.open("a", b"x" * 40)


async def test_a_call_without_a_message(opened):
    with pytest.raises(InvalidRequestError, match="has no message"):
        await opened().open(message=EOF)


async def test_a_message_that_does_not_come(opened):
    calls = opened(message_timeout=0.01)
    await calls.open(message=None)
    await asyncio.wait(calls.tasks)
    assert isinstance(calls.entered[0].refusal, MessageTimeoutError)


async def test_calls_that_wait_for_their_messages_make_room(opened, monkeypatch):
    monkeypatch.setattr("translane_server.rpc.open_calls.PATIENCE", 0.0)
    calls = opened(calls=3, caller_share=1.0)
    await calls.open("a")
    await calls.open("b", message=None)
    await calls.open("c", message=None)
    with pytest.raises(TooManyCallsError, match="as this server takes"):
        await calls.open("d")
    refusals = [call.refusal for call in calls.entered]
    assert [refusal and str(refusal).partition(",")[0] for refusal in refusals] == [
        None,
        "its message has not come",
        "its message has not come",
    ]
    await asyncio.sleep(0)
    await calls.open("d")


async def test_calls_that_arrive_in_one_moment_wait_for_their_messages(opened, monkeypatch):
    loop = asyncio.get_running_loop()
    moment = loop.time()
    monkeypatch.setattr(loop, "time", lambda: moment)  # on a busy machine the calls would take longer than a moment
    calls = opened()
    for _ in range(10 * READING):
        await calls.open(message=None)
    assert not any(call.refusal for call in calls.entered)


async def test_the_next_message_takes_the_place_of_the_one_before(opened):
    calls = opened(message_bytes=40)
    await calls.open("a", b"x" * 40)
    context: Any = Context(b"x" * 10)
    context.may_come.set()
    assert await calls.open_calls.next_message(calls.entered[0], context) == b"x" * 10
    assert calls.open_calls.size == 10
    context.message = EOF
    assert await calls.open_calls.next_message(calls.entered[0], context) is None
