"""Two servers that one client calls in turn: they are killed, drained and stopped, and no call is lost."""

import asyncio
import time

import pytest

from helpers.client_calls import CALLS, ClientCall, without_times, write_glossary
from helpers.reliability.cases import SENTENCES
from helpers.reliability.client_load import ClientLoad, ClientOracle
from helpers.reliability.form import IS_LONG, form
from helpers.reliability.server_process import BUNDLE, running_server
from helpers.reliability.several_servers import several_servers
from translane_client import AsyncClient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(form(150, 1200))]

CALLERS = 8
FAULTS = form(2, 20)
BETWEEN = 40  # answers between two faults
LONG_STREAMS = [
    ClientCall(name, "translate_stream", "".join(SENTENCES), options)
    for name, options in (("greedy", {}), ("beams", {"beam_size": 3}), ("a sample", {"temperature": 0.8, "seed": 7}))
]
COMES_BACK = 60.0  # until the client calls a server again that is back [seconds]


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    glossaries = write_glossary(tmp_path_factory.mktemp("several") / "glossaries")
    return ("--threads=1", "--replicas=1", f"--glossaries={glossaries}")


@pytest.fixture(scope="module")
def client_oracle(tmp_path_factory, flags):
    """What an undisturbed server answers to the client's calls."""
    if not BUNDLE.exists():
        pytest.skip("the bundled model is not in this tree")
    with running_server(tmp_path_factory.mktemp("oracle") / "log", *flags) as server:
        return ClientOracle(server.address, [*CALLS, *LONG_STREAMS])


@pytest.fixture
def servers(tmp_path, flags, client_oracle):
    with several_servers(tmp_path, 2, *flags) as running:
        yield running


async def is_called_again(servers, number):
    """Whether a server that came back gets calls within the time, and waits for it."""
    deadline = time.monotonic() + COMES_BACK
    while time.monotonic() < deadline:
        if await asyncio.to_thread(servers.translations_of, number):
            return True
        await asyncio.sleep(0.1)
    return False


async def under_load(servers, oracle, figures, strike, *, faults=FAULTS, deadline=60.0):
    """Strike the two servers in turn under load. `strike` takes a server's number, and leaves it running."""
    called_again = True
    async with ClientLoad(servers.address, oracle, CALLERS, timeout=deadline) as load:
        for fault in range(faults):
            await load.wait_for_answers(BETWEEN)
            await strike(load, fault % 2)
            called_again = called_again and await is_called_again(servers, fault % 2)
        await load.wait_for_answers(BETWEEN)
    figures.add(callers=CALLERS, faults=dict(servers.faults), called_again=called_again, **load.figures)
    assert load.failed == {}
    assert load.wrong == []
    assert (load.lost, load.doubled) == (0, 0)
    assert load.calls >= BETWEEN * (faults + 1)
    assert called_again


async def test_a_killed_server_costs_no_call(servers, client_oracle, figures):
    async def strike(load, number):
        servers.kill(number)
        await load.wait_for_answers(BETWEEN)
        await asyncio.to_thread(servers.restart, number)

    await under_load(servers, client_oracle, figures, strike)


async def test_a_server_that_drains_costs_no_call(servers, client_oracle, figures):
    exit_codes = []

    async def strike(load, number):
        exit_codes.append(await asyncio.to_thread(servers.drain, number))
        await load.wait_for_answers(BETWEEN)
        await asyncio.to_thread(servers.restart, number)

    await under_load(servers, client_oracle, figures, strike)
    assert set(exit_codes) == {0}


async def test_servers_that_are_killed_in_turn_without_a_break_cost_no_call(servers, client_oracle, figures):
    """A call may lose its server more than once: the client has eight attempts."""

    async def strike(load, number):
        servers.kill(number)
        await asyncio.to_thread(servers.restart, number)

    await under_load(servers, client_oracle, figures, strike, faults=form(4, 40))


async def test_all_servers_away_for_a_moment_cost_no_call(servers, client_oracle, figures):
    async def strike(load, number):
        servers.kill(0)
        servers.kill(1)
        await asyncio.gather(*(asyncio.to_thread(servers.restart, each) for each in range(2)))

    await under_load(servers, client_oracle, figures, strike, faults=form(1, 5))


@pytest.mark.skipif(not IS_LONG, reason="a client notices a server that hangs after half a minute (RELIABILITY=long)")
async def test_a_server_that_hangs_costs_no_call(servers, client_oracle, figures):
    async def strike(load, number):
        servers.hang(number)
        await load.wait_for_answers(BETWEEN)
        await asyncio.sleep(35)
        servers.resume(number)

    await under_load(servers, client_oracle, figures, strike, faults=2, deadline=120.0)


@pytest.mark.parametrize("call", LONG_STREAMS, ids=lambda call: call.name)
async def test_a_stream_goes_on_when_all_servers_were_killed(servers, client_oracle, figures, call):
    attempts = 1

    async def retry(seconds):
        nonlocal attempts
        attempts += 1
        await asyncio.sleep(seconds)

    async with AsyncClient(servers.address, timeout=60, sleep=retry) as client:
        stream = client.translate_stream(call.subject, **call.options)
        deltas = [await anext(stream)]
        for number in range(2):
            servers.kill(number)
        coming_back = [asyncio.create_task(asyncio.to_thread(servers.restart, number)) for number in range(2)]
        deltas += [delta async for delta in stream]
        await asyncio.gather(*coming_back)
    figures.add(faults=dict(servers.faults), attempts=attempts, deltas=len(deltas))
    assert client_oracle.is_right(call, ("".join(deltas), without_times(stream.result)))
    assert attempts > 1
