"""Calls that end early free their place in a service, and a full service says when to come back."""

import asyncio
import contextlib
import itertools
import logging
import time
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest
from integration.targets.conftest import on_a_server

from helpers.client_calls import ClientCall, ask
from helpers.reliability.cases import SENTENCES
from translane import AsyncClient, Cancelled, Client, DeadlineExceeded, QueueFull, RetryPolicy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(580)]  # Ray takes minutes to start on a busy machine

SHORT = ClientCall("a text", "translate", "我有一只猫。")
ONCE = RetryPolicy(attempts=1)

# A hog has 768 sentences, and each of them takes all rows of an engine for 250 steps. So a hog takes minutes, and more
# than half of the queue.
HOG = ["".join(SENTENCES[number % 18 :][:3]) for number in range(256)]
ALL_ROWS: dict[str, Any] = {"temperature": 1.0, "seed": 1, "num_hypotheses": 16}
ALL_BEAMS: dict[str, Any] = {"beam_size": 16}
LONG: dict[str, Any] = {"min_length": 250, "max_length": 250, "split_sentences": True}

WAITING = 1.0  # a call that gets no answer within this time waits for a hog [seconds]
PATIENCE = 60.0  # within which a call is answered that waits for no hog, on a busy machine [seconds]
DEADLINE = 8.0  # of a hog [seconds]


def wait_until_busy(target):
    """Until every engine has a hog: several calls, one after the other, get no answer."""
    end, unanswered = time.monotonic() + PATIENCE, 0
    with Client(target.address, retry=ONCE) as client:
        while unanswered < 2 * target.engines:
            assert time.monotonic() < end, "the service answers beside its hogs"
            try:
                ask_within(client, WAITING)
                unanswered = 0
            except (DeadlineExceeded, QueueFull):
                unanswered += 1


def ask_within(client, seconds):
    return ask(client, ClientCall(SHORT.name, SHORT.method, SHORT.subject, {"timeout": seconds}))


def assert_free(target, expected):
    """Every engine answers again, long before it would have finished a hog."""
    with Client(target.address) as client:
        for _ in range(2 * target.engines):
            assert ask_within(client, PATIENCE) == expected(SHORT)


def hog(client, **settings):
    return client.translate(HOG, **ALL_ROWS, **LONG, **settings)


@pytest.mark.parametrize("end", [Cancelled, DeadlineExceeded])
def test_closing_a_client_and_a_deadline_free_its_rows(target, expected, end):
    timeout = DEADLINE if end is DeadlineExceeded else None
    with ThreadPoolExecutor(target.engines) as threads, Client(target.address, batch_size=256) as client:
        hogs = [threads.submit(hog, client, timeout=timeout) for _ in range(target.engines)]
        wait_until_busy(target)
        if end is Cancelled:
            client.close()
        for each in hogs:
            with pytest.raises(end):
                each.result(PATIENCE)
        assert_free(target, expected)


@on_a_server
async def test_cancelling_tasks_frees_their_rows(target, expected):
    async with AsyncClient(target.address, batch_size=256) as client:
        hogs = [asyncio.create_task(hog(client)) for _ in range(target.engines)]
        await asyncio.to_thread(wait_until_busy, target)
        for each in hogs:
            each.cancel()
        for each in hogs:
            with pytest.raises(asyncio.CancelledError):
                await each
        await asyncio.to_thread(assert_free, target, expected)


def test_leaving_streams_frees_their_rows(target, expected):
    with contextlib.ExitStack() as left, Client(target.address) as client:
        for _ in range(target.engines):
            stream = left.enter_context(client.translate_stream("".join(HOG), **ALL_BEAMS, **LONG))
            assert next(stream)
        wait_until_busy(target)
        left.close()
        assert_free(target, expected)


def test_a_full_queue_says_when_to_come_back(target, expected):
    count = 3 * target.engines
    with ThreadPoolExecutor(count) as threads, Client(target.address, batch_size=256, retry=ONCE) as client:
        hogs = [threads.submit(hog, client) for _ in range(count)]
        done, _ = wait(hogs, timeout=PATIENCE, return_when="FIRST_EXCEPTION")
        client.close()
        assert done
        for refusal in [each.exception() for each in done]:
            assert isinstance(refusal, QueueFull)
            assert refusal.reason == "QUEUE_FULL"
            assert refusal.retry_after
        wait(hogs)
        assert_free(target, expected)


def test_the_client_waits_for_room_in_a_full_queue(target, undisturbed, caplog):
    caplog.set_level(logging.INFO, "translane.attempts")
    wanted = [each.text for each in undisturbed.translate(SENTENCES)]
    with Client(target.address, batch_size=200, concurrency=12 * target.engines) as client:
        translations = client.translate_iter(itertools.chain.from_iterable(itertools.repeat(SENTENCES, 120)))
        assert [each.text for each in translations] == wanted * 120
    assert caplog.records  # an attempt was refused
