import socket

import pytest

from fakes.translation_server import FakeServer
from helpers.blocking_client import connecting
from helpers.client_command import Command
from translane import AsyncClient, Client


class FakeTime:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.oversleeps = 0.0
        """By how many seconds each pause is longer than was asked for."""
        self.pauses: list[float] = []

    def rule(self, client: Client | AsyncClient) -> None:
        """Lets a client live on this clock; its random number is always 0.5."""
        client._clock = lambda: self.now
        client._jitter = lambda: 0.5
        client._sleep = self._sleep if isinstance(client, Client) else self._asleep

    def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds + self.oversleeps

    async def _asleep(self, seconds: float) -> None:
        self._sleep(seconds)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_grpc_proxy", "127.0.0.1,localhost")


@pytest.fixture
def server():
    with FakeServer().start() as server:
        yield server


@pytest.fixture
def command(server):
    return Command(server.address)


@pytest.fixture
def time():
    return FakeTime()


@pytest.fixture
def refused():
    """An address nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture(params=["sync", "async"])
def connect(request, time):
    """Makes clients of either kind that live on fake time."""
    with connecting(request.param) as make:

        def connect(address: str, **settings):
            client = make(address, **settings)
            time.rule(client if isinstance(client, Client) else client.client)
            return client

        yield connect
