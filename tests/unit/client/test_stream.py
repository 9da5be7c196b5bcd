"""Translations that arrive bit by bit: the same cases run against both clients, then what is peculiar to one."""

import asyncio
import gc
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from fakes.translation_server import BROKEN, PATIENCE, QUEUE_FULL, UNAVAILABLE, breaks_off, fails
from translane import (
    AsyncClient,
    Cancelled,
    Client,
    DeadlineExceeded,
    FinishReason,
    Internal,
    RetryPolicy,
    Timing,
    Unavailable,
)
from translane.v1 import translation_pb2 as pb


def translates(*deltas: str):
    """A behaviour that streams another translation than the usual one."""
    return lambda request, context: [
        *(pb.TranslateStreamResponse(text_delta=delta) for delta in deltas),
        pb.TranslateStreamResponse(hypothesis=pb.Hypothesis(text="".join(deltas))),
    ]


def test_deltas_arrive_in_order_and_the_translation_last(server, connect):
    with connect(server.address).translate_stream("猫 👩‍👩‍👧") as stream:
        with pytest.raises(RuntimeError, match="has not ended"):
            _ = stream.result
        assert list(stream) == list("<猫 👩‍👩‍👧>")
        assert list(stream) == []
    result = stream.result
    assert str(result) == result.text == result.hypothesis.text == "<猫 👩‍👩‍👧>"
    assert (result.score, result.finish_reason) == (-0.5, FinishReason.END_OF_SENTENCE)
    assert result.timing == Timing(queue=0.0, encode=0.0, decode=0.0, total=2.0)


def test_empty_deltas_are_left_out(server, connect):
    server.always = lambda request, context: [
        pb.TranslateStreamResponse(),
        pb.TranslateStreamResponse(text_delta="a"),
        pb.TranslateStreamResponse(text_delta="b", hypothesis=pb.Hypothesis(text="ab")),
    ]
    stream = connect(server.address).translate_stream("x")
    assert list(stream) == ["a", "b"]
    assert stream.result.text == "ab"
    assert stream.result.timing is None


@pytest.mark.parametrize("failure", [UNAVAILABLE, QUEUE_FULL, fails(grpc.StatusCode.CANCELLED, "CANCELLED")])
# How many messages come before each failure; seven are the whole text.
@pytest.mark.parametrize("counts", [[0], [1], [3], [7], [3, 1, 4]])
def test_a_stream_that_breaks_off_goes_on_where_it_was(server, connect, time, failure, counts):
    server.script = deque(breaks_off(count, failure) for count in counts)
    stream = connect(server.address).translate_stream("a\r\n猫c")
    assert list(stream) == list("<a\r\n猫c>")
    assert stream.result.text == "<a\r\n猫c>"
    assert (len(server.requests), len(time.pauses)) == (len(counts) + 1, len(counts))


@pytest.mark.parametrize("deltas", [("<abc>",), ("<a", "bc>"), ("", "<", "ab", "", "c>")])
def test_the_repetition_may_be_cut_elsewhere(server, connect, deltas):
    server.script = deque([breaks_off(2, UNAVAILABLE), translates(*deltas)])
    stream = connect(server.address).translate_stream("abc")
    assert "".join(stream) == stream.result.text == "<abc>"


@pytest.mark.parametrize("deltas", [("<x",), ("<", "", "xb"), ("<ax", "bc>"), ("<",), ()])
def test_a_repetition_with_another_text_is_not_handed_out(server, connect, deltas):
    server.script = deque([breaks_off(3, UNAVAILABLE), translates(*deltas)])
    stream = connect(server.address).translate_stream("abc")
    assert [next(stream), next(stream), next(stream)] == ["<", "a", "b"]
    with pytest.raises(Unavailable, match=r"^the stream broke off, and its repetition is another translation$"):
        next(stream)
    with pytest.raises(RuntimeError, match="has not ended"):
        _ = stream.result
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("failure", "kind", "message", "attempts"),
    [(BROKEN, Internal, "broken", 1), (UNAVAILABLE, Unavailable, "draining", 3)],
)
def test_what_no_attempt_overcomes_is_raised_after_a_delta_too(server, connect, time, failure, kind, message, attempts):
    server.always = breaks_off(2, failure)
    stream = connect(server.address, retry=RetryPolicy(attempts=3)).translate_stream("abc")
    assert [next(stream), next(stream)] == ["<", "a"]
    with pytest.raises(kind, match=message):
        next(stream)
    assert (len(server.requests), len(time.pauses)) == (attempts, attempts - 1)


def test_the_deadline_is_that_of_the_whole_stream(server, connect):
    server.always = server.hang_after(1)
    stream = connect(server.address).translate_stream("a", timeout=0.3)
    assert next(stream) == "<"
    with pytest.raises(DeadlineExceeded):
        next(stream)
    assert server.cancelled.wait(PATIENCE)


def test_leaving_the_block_cancels_the_call(server, connect):
    server.always = server.hang_after(1)
    with connect(server.address).translate_stream("a") as stream:
        next(stream)
    assert server.cancelled.wait(PATIENCE)
    with pytest.raises(RuntimeError, match="has not ended"):
        _ = stream.result


def test_closing_before_the_first_delta_makes_no_call(server, connect):
    stream = connect(server.address).translate_stream("a")
    stream.close()
    stream.close()
    assert server.requests == []


def test_dropping_a_stream_cancels_the_call(server):
    server.always = server.hang_after(1)
    with Client(server.address) as client:
        gc.disable()  # it does not take the garbage collector
        try:
            for _ in client.translate_stream("a"):
                break
            assert server.cancelled.wait(PATIENCE)
        finally:
            gc.enable()


@pytest.mark.parametrize("closes", ["stream", "client"])
def test_closing_ends_the_wait_of_another_thread(server, closes):
    server.always = server.hang_after(1)
    client = Client(server.address)
    stream = client.translate_stream("a")
    next(stream)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(next, stream)
        (stream if closes == "stream" else client).close()
        with pytest.raises(Cancelled):
            future.result(10)
    assert server.cancelled.wait(PATIENCE)
    client.close()


async def test_cancelling_a_task_cancels_its_stream(server):
    server.always = server.hang_after(1)
    async with AsyncClient(server.address) as client:

        async def consume():
            return [delta async for delta in client.translate_stream("a")]

        task = asyncio.create_task(consume())
        await asyncio.to_thread(server.wait_for_requests, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(server.cancelled.wait, 10)


async def test_dropping_an_asynchronous_stream_cancels_the_call(server):
    server.always = server.hang_after(1)
    async with AsyncClient(server.address) as client:
        async for _ in client.translate_stream("a"):
            break
        assert await asyncio.to_thread(server.cancelled.wait, 10)


@pytest.mark.parametrize("closes", ["stream", "client"])
async def test_closing_ends_the_wait_of_another_task(server, closes):
    server.always = server.hang_after(1)
    client = AsyncClient(server.address)
    stream = client.translate_stream("a")
    await anext(stream)
    task = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0.05)
    await (stream.aclose() if closes == "stream" else client.close())
    with pytest.raises(Cancelled):
        await task
    assert await asyncio.to_thread(server.cancelled.wait, 10)
    await client.close()


async def test_closing_during_a_pause_ends_the_attempts(server):
    server.always = UNAVAILABLE
    paused = asyncio.Event()

    async def sleep(seconds: float) -> None:
        paused.set()
        await asyncio.sleep(0.05)

    async with AsyncClient(server.address) as client:
        client._sleep = sleep
        stream = client.translate_stream("a")
        task = asyncio.ensure_future(anext(stream))
        await paused.wait()
        await stream.aclose()
        with pytest.raises(Cancelled):
            await task
    assert len(server.requests) == 1
