"""What is peculiar to one of the clients: threads, tasks, and closing while calls are under way."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from unit.client.fake_server import PATIENCE, FakeServer, answer

from translane import AsyncClient, Cancelled, Client, RetryPolicy


@pytest.mark.parametrize(("texts", "threads"), [("a", 0), (["a"] * 2, 0), (["a"] * 6, 3)])
def test_only_several_requests_take_threads(server: FakeServer, texts, threads: int):
    seen = 0

    def counting(request, context):
        nonlocal seen
        if threads:
            server.wait_for_requests(threads)
        seen = sum(thread.name.startswith("translane") for thread in threading.enumerate())
        return answer(request)

    server.always = counting
    with Client(server.address, batch_size=2) as client:
        client.translate(texts)
    assert seen == threads


def test_closing_ends_a_call_of_another_thread(server: FakeServer):
    server.always = server.hang
    client = Client(server.address)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(client.translate, "a")
        server.wait_for_requests(1)
        client.close()
        with pytest.raises(Cancelled):
            future.result(10)
    assert server.cancelled.wait(PATIENCE)


def test_leaving_ends_a_pause(refused: str):
    policy = RetryPolicy(initial=60.0, maximum=60.0)
    failed = threading.Event()

    def texts():
        yield "a"
        failed.wait(10)
        raise KeyboardInterrupt

    def jitter() -> float:
        failed.set()
        return 1.0

    with Client(refused, retry=policy, batch_size=1) as client:
        client._jitter = jitter
        with pytest.raises(KeyboardInterrupt):
            list(client.translate_iter(texts()))  # would take minutes if it waited for the pause


async def test_cancelling_a_task_cancels_its_calls(server: FakeServer):
    server.always = server.hang
    async with AsyncClient(server.address, batch_size=1) as client:
        task = asyncio.create_task(client.translate(["a", "b"]))
        await asyncio.to_thread(server.wait_for_requests, 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(server.cancelled.wait, 10)


async def test_closing_ends_a_call_of_another_task(server: FakeServer):
    server.always = server.hang
    client = AsyncClient(server.address)
    task = asyncio.create_task(client.translate("a"))
    await asyncio.to_thread(server.wait_for_requests, 1)
    await client.close()
    with pytest.raises(Cancelled):
        await task


async def test_texts_may_come_asynchronously(server: FakeServer):
    given = [*["x" * 500_000] * 3, *"abc"]

    async def texts():
        for text in given:
            await asyncio.sleep(0)
            yield text

    async with AsyncClient(server.address, batch_size=3, concurrency=1) as client:
        received = [str(translation) async for translation in client.translate_iter(texts())]
    assert received == [f"<{text}>" for text in given]
    assert server.sizes() == [2, 3, 1]  # below the longest message, and three at most
