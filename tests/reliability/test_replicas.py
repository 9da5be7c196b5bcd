"""Replicas are killed, stopped, slowed and starved, and resources run out: no call is lost, no answer differs."""

import asyncio
import resource
import signal
from collections import Counter

import grpc
import psutil
import pytest

from helpers.failures import ended
from helpers.reliability.bounds import GAP, RECOVERY
from helpers.reliability.cases import single, stream_answer
from helpers.reliability.chaos import Chaos
from helpers.reliability.form import form
from helpers.reliability.load import CHANNEL_OPTIONS, Load
from helpers.reliability.probe import bystander
from helpers.reliability.resources import MEGABYTE
from helpers.reliability.waiting import within
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc

pytestmark = [pytest.mark.slow, pytest.mark.timeout(form(150, 1200))]

CALLERS = 8
FAULTS = form(2, 20)
BETWEEN = 20  # answers between two faults
# Before a fault [seconds]; a server ends that loses many replicas in a short time.
PAUSE = form((0.0, 0.3), (8.0, 12.0))
REPLICA_TIMEOUT = form(2, 5)  # until a hung replica is replaced [seconds]
REPLACED = "has been replaced"  # a log line for each lost replica


async def replaced(server, count):
    """Whether as many replicas have been replaced within the time, and waits for it."""
    return await within(RECOVERY, lambda: server.log.count(REPLACED) >= count)


async def under_load(server, oracle, figures, strike, *, faults=FAULTS, losses=0, may_be_down=False):
    """Strike again and again under load, and wait each time until the server has all its replicas again.

    Args:
        losses: how many replicas are certainly lost with each strike.
        may_be_down: whether no replica may be left for a time, so that health says NOT_SERVING.
    """
    chaos = Chaos(server)
    back = True
    with bystander(server.address) as seen:
        async with Load(server.address, oracle, CALLERS, timeout=60) as load:
            for number in range(1, faults + 1):
                await load.wait_for_answers(BETWEEN)
                await chaos.pause(*PAUSE)
                await strike(chaos)
                back = await chaos.recovered(RECOVERY) and await replaced(server, number * losses)
                if not back:
                    break
            if back:
                await load.wait_for_answers(BETWEEN)
    figures.add(
        callers=CALLERS, **chaos.figures, all_back=back, server_alive=server.is_alive, **load.figures, **seen.figures
    )
    assert server.is_alive
    assert back
    assert (load.lost, load.refused) == (0, {})
    assert load.answered > 0
    assert set(seen.failed) <= ({"health NOT_SERVING"} if may_be_down else set())


@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_killed_replica_loses_nothing(start, oracle, figures, replicas):
    async def strike(chaos):
        chaos.kill(chaos.a_replica())

    with start(f"--replicas={replicas}", "--threads=1") as server:
        await under_load(server, oracle, figures, strike, losses=1, may_be_down=replicas == 1)


@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_hung_replica_loses_nothing(start, oracle, figures, replicas):
    async def strike(chaos):
        chaos.stop(chaos.a_replica())
        await asyncio.sleep(1.0)  # before it is noticed, no replica seems to miss

    with start(f"--replicas={replicas}", "--threads=1", f"--replica-timeout={REPLICA_TIMEOUT}") as server:
        await under_load(server, oracle, figures, strike, faults=form(1, 10), losses=1, may_be_down=replicas == 1)


async def test_a_slow_replica_loses_nothing(server, oracle, figures):
    async def strike(chaos):
        slow = chaos.a_replica()
        for _ in range(10):
            chaos.stop(slow)
            await asyncio.sleep(0.15)
            chaos.resume(slow)
            await asyncio.sleep(0.05)

    await under_load(server, oracle, figures, strike, faults=form(1, 10))


async def test_a_replica_without_memory_loses_nothing(server, oracle, figures):
    async def strike(chaos):
        for replica in chaos.a_replica():
            most = replica.memory_info().vms  # not a byte more
            resource.prlimit(replica.pid, resource.RLIMIT_AS, (most, most))
            chaos.faults["starved"] += 1
        await asyncio.sleep(2.0)

    await under_load(server, oracle, figures, strike, faults=form(1, 10))


async def test_a_killed_replica_repeats_no_byte_of_a_stream(server, oracle, figures):
    cases = [case for case in oracle.cases if case.is_stream]
    chaos = Chaos(server)
    cut, right, failed = 0, 0, []
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = translation_pb2_grpc.TranslationServiceStub(channel)
        for case in cases[: form(4, 12)]:
            call = stub.TranslateStream(case.request, timeout=60)
            responses = []
            try:
                async for response in call:
                    responses.append(response)
                    if len(responses) == 1:
                        cut += not response.HasField("hypothesis")
                        chaos.kill(server.replicas())
                right += oracle.is_right(case, stream_answer(responses))
            except (grpc.aio.AioRpcError, ValueError) as error:
                failed.append(str(error)[:80])
            if not await chaos.recovered(RECOVERY):
                break
            await chaos.pause(*PAUSE)
    figures.add(streams=len(cases[: form(4, 12)]), cut=cut, right=right, failed=failed, **chaos.figures)
    assert cut
    assert right == len(cases[: form(4, 12)])


# A full disk and little memory: the server goes on.


LOG_BLOCKS = 16  # of 512 bytes: the log is full after some calls
HEADROOM = 512 * MEGABYTE  # of address space


async def test_a_full_disk_of_the_log_stops_nothing(start, works_and_ends):
    with start("--log-level=debug", limits={"f": LOG_BLOCKS}) as server:
        await works_and_ends(server, form(80, 2000))
        assert len(server.log.encode()) <= LOG_BLOCKS * 512


async def test_little_memory_ends_no_call_wrongly(server, oracle, figures):
    most = psutil.Process(server.pid).memory_info().vms + HEADROOM
    resource.prlimit(server.pid, resource.RLIMIT_AS, (most, most))
    request = pb.TranslateRequest(texts=[" " * 3_900] * 256)
    with bystander(server.address) as seen:
        async with (
            grpc.aio.insecure_channel(server.address, options=CHANNEL_OPTIONS) as channel,
            Load(server.address, oracle, callers=4) as load,
        ):
            stub = translation_pb2_grpc.TranslationServiceStub(channel)
            calls = [ended(stub.Translate(request, timeout=60)) for _ in range(form(800, 2000))]
            outcomes = Counter(await asyncio.gather(*calls))
            await load.wait_for_answers(20)
    figures.add(
        headroom_MiB=HEADROOM // MEGABYTE,
        large_calls=dict(outcomes),
        alive=server.is_alive,
        **load.figures,
        **seen.figures,
    )
    assert server.is_alive
    assert not [name for name in outcomes if name.startswith("final")]
    assert load.lost == 0
    assert not seen.failed
    assert max(seen.health, seen.translate) < GAP


async def test_a_log_that_nobody_reads_stops_nothing(start, works_and_ends):
    """A pipe takes 64 KiB. Then its writer waits, unless it takes care."""
    with start("--log-level=debug", pipes_log=True) as server:
        server.log_reader.send_signal(signal.SIGSTOP)
        answers, seconds = form((500, 60.0), (4000, 240.0))
        await works_and_ends(server, answers, seconds=seconds, callers=4, timeout=10, cases=[single()])
