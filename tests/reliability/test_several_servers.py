"""Two servers that one client calls in turn: they are killed, drained and stopped, and no call is lost."""

import asyncio
import contextlib
import random
import re
import signal
import socket
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from helpers.client_calls import LONG_STREAMS
from helpers.reliability.form import IS_LONG, form
from helpers.reliability.load import ClientLoad, Load, cut_stream
from helpers.reliability.waiting import within
from helpers.server_process import ServerProcess
from translane import RetryPolicy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(form(150, 1200))]

DEPLOYMENT = Path(__file__).parents[2] / "docs" / "deployment.md"
CALLERS = 8
FAULTS = form(2, 20)
BETWEEN = 40  # answers between two faults
# Where no server is left: the pauses of the client's default are some 6 s in all, in which a server may not be back.
PATIENT = RetryPolicy(attempts=20)
COMES_BACK = 60.0  # until the client calls a server again that is back [seconds]
MOST_PAUSE = 1000  # until a channel tries to connect again, as docs/deployment.md has it [milliseconds]
RECONNECTED = 2.5  # until every channel has found a server that is back, with room [seconds]
# Below the ports that the kernel gives to connections. So nobody takes a server's port while the server is away.
PORTS = range(20_000, 32_000)
TRANSLATIONS = ("grpc_server_handled_total{", 'grpc_method="Translate"')


class Servers:
    """Two servers with the same flags, which come back at their addresses."""

    def __init__(self, folder: Path, flags: Sequence[str]) -> None:
        self._folder = folder
        self._flags = flags
        self._started = 0
        self._servers = [self._start(lasting_port()) for _ in range(2)]
        self.faults: Counter[str] = Counter()  # how often servers were killed, stopped and drained

    @property
    def address(self) -> str:
        """Both addresses, as a client takes them."""
        return ",".join(server.address for server in self._servers)

    def wait_until_both_serve(self) -> None:
        """RuntimeError: a server does not serve in time."""
        for number, server in enumerate(self._servers):
            if server.is_alive:
                server.wait_until_it_serves()
            else:
                self.restart(number)
        self.faults.clear()

    def kill(self, number: int) -> int:
        """Kill a server, as the kernel does when memory is out. Returns its exit code."""
        self.faults["killed"] += 1
        self._servers[number].process.kill()
        return self._servers[number].process.wait()

    def hang(self, number: int) -> None:
        """Stop a server, so that it hangs with its connections open."""
        self._servers[number].signal(signal.SIGSTOP)
        self.faults["stopped"] += 1

    def resume(self, number: int) -> None:
        """Let a stopped server go on."""
        self._servers[number].signal(signal.SIGCONT)

    def drain(self, number: int) -> int | None:
        """End a server as an orchestrator does. Returns its exit code; None if it does not end."""
        self.faults["drained"] += 1
        return self._servers[number].terminate(60)

    def restart(self, number: int) -> None:
        """Start a server where one has ended, and wait until it serves. RuntimeError: it does not serve in time."""
        ended = self._servers[number]
        ended.stop()
        self._servers[number] = self._start(ended.port)
        self._servers[number].wait_until_it_serves()

    def translations_of(self, number: int) -> float:
        """How many calls of `Translate` a server has answered since it started."""
        metrics = self._servers[number].metrics().items()
        return sum(value for name, value in metrics if all(part in name for part in TRANSLATIONS))

    def stop(self) -> None:
        for server in self._servers:
            server.stop()

    def _start(self, port: int) -> ServerProcess:
        self._started += 1
        return ServerProcess(self._folder / f"server-{self._started}.log", [*self._flags, f"--port={port}"])


def lasting_port() -> int:
    while True:
        port = random.choice(PORTS)
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port


@pytest.fixture(scope="module")
def started(tmp_path_factory, client_flags):
    servers = Servers(tmp_path_factory.mktemp("servers"), client_flags)
    yield servers
    servers.stop()


@pytest.fixture
def servers(started, client_oracle):
    """Both servers, which serve, whatever the test before has left."""
    started.wait_until_both_serve()
    return started


async def is_called_again(servers, number):
    """Whether a server that came back gets calls within the time, and waits for it."""
    return await within(COMES_BACK, lambda: servers.translations_of(number))


async def under_load(servers, oracle, figures, strike, *, faults=FAULTS, deadline=60.0, retry=None):
    """Strike the two servers in turn under load. `strike` takes a server's number, and leaves it running."""
    called_again = True
    async with ClientLoad(servers.address, oracle, CALLERS, timeout=deadline, retry=retry) as load:
        for fault in range(faults):
            await load.wait_for_answers(BETWEEN)
            await strike(load, fault % 2)
            called_again = called_again and await load.lightly(is_called_again(servers, fault % 2))
        await load.wait_for_answers(BETWEEN)
    figures.add(callers=CALLERS, faults=dict(servers.faults), called_again=called_again, **load.figures)
    load.assert_nothing_lost(BETWEEN * (faults + 1))
    assert called_again


@pytest.mark.parametrize(("end", "code", "faults"), [("drain", 0, FAULTS), ("kill", -signal.SIGKILL, form(3, 40))])
async def test_servers_that_end_in_turn_cost_no_call(servers, client_oracle, figures, end, code, faults):
    """A call may lose its server more than once: the client has eight attempts."""
    codes = set()

    async def strike(load, number):
        codes.add(await asyncio.to_thread(getattr(servers, end), number))
        await load.wait_for_answers(BETWEEN)
        await load.lightly(asyncio.to_thread(servers.restart, number))

    await under_load(servers, client_oracle, figures, strike, faults=faults)
    assert codes == {code}


async def test_all_servers_away_for_a_moment_cost_no_call(servers, client_oracle, figures):
    async def strike(load, number):
        servers.kill(0)
        servers.kill(1)
        await load.lightly(asyncio.gather(*(asyncio.to_thread(servers.restart, each) for each in range(2))))

    await under_load(servers, client_oracle, figures, strike, faults=form(1, 5), retry=PATIENT)


@pytest.mark.skipif(not IS_LONG, reason="a client notices a server that hangs after half a minute (RELIABILITY=long)")
async def test_a_server_that_hangs_costs_no_call(servers, client_oracle, figures):
    async def strike(load, number):
        servers.hang(number)
        await load.wait_for_answers(BETWEEN)
        await asyncio.sleep(35)
        servers.resume(number)

    await under_load(servers, client_oracle, figures, strike, faults=2, deadline=120.0)


async def test_retries_of_grpc_itself_lose_no_call(servers, oracle, figures):
    """With the service config that docs/deployment.md shows, and without Translane's client."""
    (config,) = re.findall(r"^```json\n(.*?)^```", DEPLOYMENT.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    options = [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.service_config", config),
        ("grpc.max_reconnect_backoff_ms", MOST_PAUSE),
    ]
    cases = [case for case in oracle.cases if not case.is_stream]
    async with Load(f"ipv4:{servers.address}", oracle, CALLERS, cases=cases, timeout=60, options=options) as load:
        for fault in range(FAULTS):
            await load.wait_for_answers(BETWEEN)
            await asyncio.to_thread(servers.kill if fault % 2 else servers.drain, fault % 2)
            await load.wait_for_answers(BETWEEN)
            await load.lightly(asyncio.to_thread(servers.restart, fault % 2))
            assert await load.lightly(is_called_again(servers, fault % 2))
            await load.lightly(asyncio.sleep(RECONNECTED))
        await load.wait_for_answers(BETWEEN)
    calls = load.answered + load.lost + load.refused.total()
    figures.add(callers=CALLERS, calls=calls, faults=dict(servers.faults), **load.figures)
    load.assert_nothing_lost(BETWEEN * (FAULTS + 1))


@pytest.mark.parametrize("call", LONG_STREAMS, ids=lambda call: call.name)
async def test_a_stream_goes_on_when_all_servers_were_killed(servers, client_oracle, figures, call):
    coming_back = []

    def strike():
        for number in range(2):
            servers.kill(number)
            coming_back.append(asyncio.create_task(asyncio.to_thread(servers.restart, number)))

    cut = await cut_stream(servers.address, call, strike, seconds=60, retry=PATIENT)
    await asyncio.gather(*coming_back)
    figures.add(faults=dict(servers.faults), **cut.figures)
    cut.assert_whole(client_oracle)
