"""Two servers that one client calls in turn: they are killed, drained and stopped, and no call is lost."""

import asyncio
import re
from pathlib import Path

import pytest

from helpers.client_calls import LONG_STREAMS
from helpers.reliability.client_load import ClientLoad
from helpers.reliability.form import IS_LONG, form
from helpers.reliability.load import Load
from helpers.reliability.several_servers import several_servers
from helpers.reliability.stream_cut import cut_stream
from helpers.reliability.waiting import within
from translane import RetryPolicy
from translane.v1 import translation_pb2 as pb

pytestmark = [pytest.mark.slow, pytest.mark.timeout(form(150, 1200))]

DEPLOYMENT = Path(__file__).parents[2] / "docs" / "deployment.md"
CALLERS = 8
FAULTS = form(2, 20)
BETWEEN = 40  # answers between two faults
# Where no server is left: the pauses of the client's default are some 6 s in all, in which a server may not be back.
PATIENT = RetryPolicy(attempts=20)
COMES_BACK = 60.0  # until the client calls a server again that is back [seconds]


@pytest.fixture
def servers(tmp_path, client_flags, client_oracle):
    with several_servers(tmp_path, 2, *client_flags) as running:
        yield running


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


async def test_a_server_that_drains_costs_no_call(servers, client_oracle, figures):
    exit_codes = []

    async def strike(load, number):
        exit_codes.append(await asyncio.to_thread(servers.drain, number))
        await load.wait_for_answers(BETWEEN)
        await load.lightly(asyncio.to_thread(servers.restart, number))

    await under_load(servers, client_oracle, figures, strike)
    assert set(exit_codes) == {0}


async def test_servers_that_are_killed_in_turn_cost_no_call(servers, client_oracle, figures):
    """A call may lose its server more than once: the client has eight attempts."""

    async def strike(load, number):
        servers.kill(number)
        await load.wait_for_answers(BETWEEN)
        await load.lightly(asyncio.to_thread(servers.restart, number))

    await under_load(servers, client_oracle, figures, strike, faults=form(3, 40))


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
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.service_config", config)]
    cases = [case for case in oracle.cases if not isinstance(case.request, pb.TranslateStreamRequest)]
    async with Load(f"ipv4:{servers.address}", oracle, CALLERS, cases=cases, timeout=60, options=options) as load:
        for fault in range(FAULTS):
            await load.wait_for_answers(BETWEEN)
            await asyncio.to_thread(servers.kill if fault % 2 else servers.drain, fault % 2)
            await load.wait_for_answers(BETWEEN)
            await load.lightly(asyncio.to_thread(servers.restart, fault % 2))
            assert await load.lightly(is_called_again(servers, fault % 2))
        await load.wait_for_answers(BETWEEN)
    calls = load.answered + load.lost + load.refused.total()
    figures.add(callers=CALLERS, calls=calls, faults=dict(servers.faults), **load.figures)
    assert (load.lost, load.refused) == (0, {})


@pytest.mark.parametrize("call", LONG_STREAMS, ids=lambda call: call.name)
async def test_a_stream_goes_on_when_all_servers_were_killed(servers, client_oracle, figures, call):
    coming_back = []

    def strike():
        for number in range(2):
            servers.kill(number)
            coming_back.append(asyncio.create_task(asyncio.to_thread(servers.restart, number)))

    cut = await cut_stream(servers.address, call, strike, seconds=60, retry=PATIENT)
    await asyncio.gather(*coming_back)
    is_right = client_oracle.is_right(call, cut.answer)
    figures.add(
        calls=1, faults=dict(servers.faults), tried_again_by_the_client=cut.retries, parts=cut.parts,
        lost=int(not is_right), doubled=0,
    )  # fmt: skip
    assert is_right
    assert cut.retries
