"""Calls that are spread over servers that come and go; threads, tasks, and closing while calls are under way."""

import asyncio
import threading
import time as clock
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import grpc
import pytest

from fakes.translation_server import PATIENCE, QUEUE_FULL, FakeServer, answer, fails, reason, retry_in
from helpers.client_command import Command
from helpers.name_server import NameServer
from translane import AsyncClient, Cancelled, Client, RetryPolicy, Unavailable


@pytest.fixture
def servers():
    with FakeServer().start() as first, FakeServer().start() as second:
        yield [first, second]


@pytest.fixture
def several(servers):
    return [server.address for server in servers]


def until_all_have_calls(translate: Callable[[str], object], servers: list[FakeServer]) -> None:
    """Waits until a client is connected to all servers: until then, it calls those that it is connected to."""
    for server in servers:
        server.requests.clear()
    end = clock.monotonic() + PATIENCE
    while not all(server.requests for server in servers):
        assert clock.monotonic() < end, "a server has no call"
        translate("first")
    for server in servers:
        server.requests.clear()


def test_calls_streams_scores_and_batches_take_servers_in_turn(servers, several, connect):
    client = connect(several, batch_size=1)
    until_all_have_calls(client.translate, servers)
    for _ in range(10):
        assert "".join(client.translate_stream("a")) == "<a>"
        client.score([("a", "b")])
    assert [len(server.requests) for server in servers] == [10, 10]
    assert [translation.text for translation in client.translate(map(str, range(40)))] == [f"<{n}>" for n in range(40)]
    assert [len(server.requests) for server in servers] == [30, 30]


CANNOT_SERVE = fails(grpc.StatusCode.UNAVAILABLE, "the model is failing", reason("UNAVAILABLE"), retry_in(50))


@pytest.mark.parametrize(
    ("refusal", "longest"), [(CANNOT_SERVE, 0.0), (fails(grpc.StatusCode.UNAVAILABLE, "of a proxy"), 0.05)]
)
def test_another_server_answers_what_one_refuses(servers, several, connect, time, refusal, longest):
    client = connect(several)
    until_all_have_calls(client.translate, servers)
    servers[0].always = refusal
    for _ in range(10):
        assert client.translate("a").text == "<a>"
        assert "".join(client.translate_stream("b")) == "<b>"
    assert len(servers[1].requests) == 20
    assert max(time.pauses) == pytest.approx(longest)


@pytest.mark.parametrize("concurrency", [2, 8])
def test_no_call_of_many_waits_at_a_server_that_refuses(servers, several: list[str], concurrency: int):
    # A call that waited as long as the server asks would fail: the deadline is earlier.
    with Client(several, batch_size=1, concurrency=concurrency, timeout=49.0) as client:
        until_all_have_calls(client.translate, servers)
        servers[0].always = CANNOT_SERVE
        assert [str(each) for each in client.translate(map(str, range(400)))] == [f"<{n}>" for n in range(400)]
    assert len(servers[0].requests) > 50


def test_where_no_server_serves_the_back_off_is_as_ever(servers, several, connect, time):
    client = connect(several, retry=RetryPolicy(attempts=3, initial=1.0))
    until_all_have_calls(client.translate, servers)
    for server in servers:
        server.always = CANNOT_SERVE
    for _ in range(2):
        time.pauses.clear()
        before = sum(len(server.requests) for server in servers)
        with pytest.raises(Unavailable):
            client.translate("a")
    assert time.pauses == [50.5, 51.0]
    assert sum(len(server.requests) for server in servers) - before == 3
    servers[1].always = None
    assert client.translate("a").text == "<a>"


def test_a_call_that_all_servers_refuse_ends_though_others_are_answered(servers, several):
    settled = threading.Event()
    for server in servers:
        server.by_text(refused=CANNOT_SERVE)
    with (
        Client(several, retry=RetryPolicy(attempts=2, initial=0.001), timeout=49.0) as client,
        ThreadPoolExecutor(1) as pool,
    ):

        def others() -> None:
            while not settled.is_set():
                client.translate("other")

        running = pool.submit(others)
        with pytest.raises(Unavailable):
            client.translate("refused")
        settled.set()
        running.result()
    refused = [request for server in servers for request in server.requests if request.texts == ["refused"]]
    assert 1 < len(refused) <= 40


@pytest.mark.parametrize(
    ("refusal", "settings", "pauses"),
    [(QUEUE_FULL, {"retry": RetryPolicy(initial=0.0)}, [2.5]), (CANNOT_SERVE, {"retry": RetryPolicy(attempts=1)}, [])],
)
def test_what_is_no_reason_to_ask_another_server_at_once(servers, several, connect, time, refusal, settings, pauses):
    client = connect(several, **settings)
    until_all_have_calls(client.translate, servers)
    for server in servers:
        server.script.append(refusal)
    with suppress(Unavailable):
        client.translate("a")
    assert time.pauses[:1] == pauses


def test_a_server_that_is_gone_costs_no_call(servers, several, connect):
    client = connect(several)
    until_all_have_calls(client.translate, servers)
    servers[0].stop()
    for _ in range(20):
        assert client.translate("a").text == "<a>"
    assert len(servers[1].requests) == 20
    servers[1].stop()
    with pytest.raises(Unavailable, match=f"^cannot reach {several[0]}, {several[1]}: "):
        client.translate("a")


def test_a_name_with_several_servers(connect):
    with ExitStack() as stack:
        servers = [FakeServer() for _ in range(3)]
        port = 0
        for number, server in enumerate(servers):
            server.start(host=f"127.0.0.{number + 1}", port=port)
            stack.callback(server.stop)
            port = port or int(server.address.rpartition(":")[2])
        names = stack.enter_context(NameServer("127.0.0.1", "127.0.0.2"))
        client = connect(f"dns://{names.address}/translane.test:{port}")
        until_all_have_calls(client.translate, servers[:2])
        for _ in range(20):
            client.translate("a")
        assert [len(server.requests) for server in servers] == [10, 10, 0]
        # gRPC looks names up again when a connection ends.
        names.addresses = ["127.0.0.2", "127.0.0.3"]
        servers[0].stop()
        until_all_have_calls(client.translate, servers[1:])
        for _ in range(20):
            client.translate("a")
        assert [len(server.requests) for server in servers[1:]] == [10, 10]


def test_connections_that_end_by_age_cost_no_call():
    ages = [("grpc.max_connection_age_ms", 100), ("grpc.max_connection_age_grace_ms", 0)]
    with FakeServer().start(options=ages) as server, Client(server.address) as client:
        end = clock.monotonic() + 1.5
        calls = 0
        while clock.monotonic() < end:
            assert client.translate("a").text == "<a>"
            calls += 1
        assert calls >= 10
        assert len(server.peers) > 3


def test_bench_loads_several_servers(servers, several, refused):
    load = ["bench", "--clients", "4", "--duration", "500ms", "--warm-up", "100ms"]
    assert Command(refused)(*load, "--server", ", ".join(several)) == 0
    counts = [len(server.requests) for server in servers]
    assert min(counts) > 0.3 * max(counts)


# What is peculiar to one of the clients: threads, tasks, and closing while calls are under way.


@pytest.mark.parametrize(("texts", "threads"), [("a", 0), (["a"] * 2, 0), (["a"] * 6, 3)])
def test_only_several_requests_take_threads(server, texts, threads):
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


def test_leaving_ends_a_pause(refused):
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


async def test_closing_ends_a_call_of_another_task(server):
    server.always = server.hang
    client = AsyncClient(server.address)
    task = asyncio.create_task(client.translate("a"))
    await asyncio.to_thread(server.wait_for_requests, 1)
    await client.close()
    with pytest.raises(Cancelled):
        await task


async def test_texts_may_come_asynchronously(server):
    given = [*["x" * 500_000] * 3, *"abc"]

    async def texts():
        for text in given:
            await asyncio.sleep(0)
            yield text

    async with AsyncClient(server.address, batch_size=3, concurrency=1) as client:
        received = [str(translation) async for translation in client.translate_iter(texts())]
    assert received == [f"<{text}>" for text in given]
    assert server.sizes() == [2, 3, 1]  # below the longest message, and three at most
