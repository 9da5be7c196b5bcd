"""Ray Serve under load: its replicas and their processes are killed, and drained. No call is lost."""

import asyncio
import contextlib
import signal
import time
from collections import Counter

import psutil
import pytest

from helpers.client_calls import LONG_STREAMS
from helpers.reliability.form import form
from helpers.reliability.load import ClientLoad, cut_stream
from helpers.reliability.waiting import within
from helpers.server_process import BUNDLE

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray"), pytest.mark.timeout(form(580, 1800))]

CALLERS = 8
FAULTS = form(1, 10)
BETWEEN = 40  # answers between two faults
PAUSE = form(0.0, 8.0)  # before a fault; an engine ends that loses many processes in a short time [seconds]
DEADLINE = 120.0  # of a call [seconds]
RECOVERY = 90.0  # until Serve has replaced what was lost [seconds]


@pytest.fixture(scope="module")
def argv(client_flags):
    """Of `translane ray`, without the number of Serve replicas."""
    return [f"{BUNDLE}", "--metrics-port=0", *client_flags]


@pytest.fixture(scope="module")
def serving(argv, client_oracle, ray_cluster):
    """An application of two Serve replicas, for all tests, which leave it as it was."""
    ray_cluster.deploy([*argv, "--serve-replicas=2"])
    ray_cluster.settled(2)
    return ray_cluster


def engine_processes(replica):
    """The processes that decode for a Serve replica."""
    with contextlib.suppress(psutil.Error):
        return [each for each in replica.children(recursive=True) if "translane_server.workers" in each.cmdline()]
    return []


async def recovered(serving, lost):
    """Whether Serve has two replicas again without any of the processes `lost`, each of which decodes; waits for it."""

    def two_decode():
        replicas = serving.replicas()
        decoding = [engine_processes(each) for each in replicas]
        present = {process.pid for each in decoding for process in each} | {each.pid for each in replicas}
        return len(replicas) == 2 and all(decoding) and not present & {each.pid for each in lost}

    return await within(RECOVERY, two_decode)


async def under_load(serving, oracle, figures, strike):
    """Strike again and again under load. `strike` returns the processes that it has killed."""
    faults: Counter[str] = Counter()
    recoveries = []
    async with ClientLoad(serving.address, oracle, CALLERS, timeout=DEADLINE) as load:
        for _ in range(FAULTS):
            await load.wait_for_answers(BETWEEN)
            await asyncio.sleep(PAUSE)
            lost = strike()
            faults["killed"] += len(lost)
            started = time.monotonic()
            if not await load.lightly(recovered(serving, lost)):
                break
            recoveries.append(time.monotonic() - started)
        await load.wait_for_answers(BETWEEN)
    figures.add(
        callers=CALLERS, faults=dict(faults), recoveries=len(recoveries),
        longest_recovery_s=max(recoveries, default=0.0), **load.figures,
    )  # fmt: skip
    load.assert_nothing_lost(BETWEEN)
    assert len(recoveries) == FAULTS


def killed(processes):
    """Kill processes, as the kernel does when memory is out, and return them."""
    for process in processes:
        process.send_signal(signal.SIGKILL)
    return processes


async def test_all_replicas_of_serve_killed_at_once_cost_no_call(serving, client_oracle, figures):
    await under_load(serving, client_oracle, figures, lambda: killed(serving.replicas()))


async def test_a_killed_process_of_an_engine_costs_no_call(serving, client_oracle, figures):
    await under_load(serving, client_oracle, figures, lambda: killed(engine_processes(serving.replicas()[0])))


@pytest.mark.parametrize("call", form(LONG_STREAMS[1:2], LONG_STREAMS), ids=lambda call: call.name)
async def test_a_stream_goes_on_when_all_replicas_of_serve_were_killed(serving, client_oracle, figures, call):
    lost = []
    cut = await cut_stream(serving.address, call, lambda: lost.extend(killed(serving.replicas())), seconds=DEADLINE)
    figures.add(faults={"killed": len(lost)}, **cut.figures)
    cut.assert_whole(client_oracle)
    assert await recovered(serving, lost)
