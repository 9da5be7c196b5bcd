"""The health service: a watcher who does not read keeps nobody from anything."""

import asyncio

import pytest
from grpc_health.v1 import health_pb2 as pb

from translane_server.api.health import HealthService

SERVING = pb.HealthCheckResponse.SERVING
NOT_SERVING = pb.HealthCheckResponse.NOT_SERVING


class Watcher:
    """Watches a service. It reads nothing unless `reads` is set."""

    def __init__(self, health, service="a"):
        self.states = []
        self.reads = asyncio.Event()
        self.reads.set()
        self.task = asyncio.create_task(health.Watch(pb.HealthCheckRequest(service=service), None, self.write))

    async def write(self, response):
        await self.reads.wait()
        self.states.append(response.status)


@pytest.fixture
async def watch():
    watchers = []

    def make(*arguments):
        watchers.append(Watcher(*arguments))
        return watchers[-1]

    yield make
    for watcher in watchers:
        watcher.task.cancel()
    await asyncio.gather(*(watcher.task for watcher in watchers), return_exceptions=True)


async def turns():
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_watcher_who_does_not_read_keeps_nobody_from_news_and_gets_the_last_state(watch):
    health = HealthService()
    health.replace({"a": SERVING})
    slow = watch(health)
    slow.reads.clear()
    await turns()
    watcher = watch(health)
    await turns()
    health.replace({"a": NOT_SERVING})
    await turns()
    health.replace({"a": SERVING})
    await turns()
    health.close()
    await turns()
    assert watcher.states == [SERVING, NOT_SERVING, SERVING, NOT_SERVING]
    slow.reads.set()
    await turns()
    assert slow.states == [SERVING, NOT_SERVING]


async def test_nothing_serves_after_the_end(watch):
    health = HealthService()
    health.replace({"a": SERVING})
    health.close()
    health.replace({"a": SERVING})
    watcher = watch(health)
    await turns()
    assert watcher.states == [NOT_SERVING]


async def test_watchers_who_have_gone_are_forgotten(watch):
    health = HealthService()
    watchers = [watch(health), watch(health)]
    await turns()
    for watcher in watchers:
        watcher.task.cancel()
    await turns()
    assert not health._watchers
