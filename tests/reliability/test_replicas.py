"""Replicas are killed, stopped, slowed and starved, and resources run out: no call is lost, no answer differs."""

import asyncio
import resource
import signal
from collections import Counter
from functools import partial

import grpc
import psutil
import pytest

from helpers.failures import ended
from helpers.reliability.bounds import GAP, RECOVERY
from helpers.reliability.cases import single, stream_answer
from helpers.reliability.chaos import Chaos
from helpers.reliability.form import form
from helpers.reliability.load import Load, connected
from helpers.reliability.probe import bystander
from helpers.reliability.resources import MEGABYTE
from helpers.reliability.waiting import within
from translane.v1 import translation_pb2 as pb

pytestmark = [pytest.mark.slow, pytest.mark.timeout(form(150, 1200))]

CALLERS = 8
FAULTS, FEWER = form((2, 1), (20, 10))
BETWEEN = 20  # answers between two faults
# Before a fault [seconds]; a server ends that loses many replicas in a short time.
PAUSE = form((0.0, 0.3), (8.0, 12.0))
REPLICA_TIMEOUT = form(2, 5)  # until a hung replica is replaced [seconds]
REPLACED = "has been replaced"  # a log line for each lost replica


async def kill(chaos):
    chaos.kill(chaos.a_replica())


async def hang(chaos):
    chaos.stop(chaos.a_replica())
    await asyncio.sleep(1.0)  # before it is noticed, no replica seems to miss


async def slow_down(chaos):
    slow = chaos.a_replica()
    for _ in range(10):
        chaos.stop(slow)
        await asyncio.sleep(0.15)
        chaos.resume(slow)
        await asyncio.sleep(0.05)


async def starve(chaos):
    for replica in chaos.a_replica():
        most = replica.memory_info().vms  # not a byte more
        resource.prlimit(replica.pid, resource.RLIMIT_AS, (most, most))
        chaos.faults["starved"] += 1
    await asyncio.sleep(2.0)


def has_replaced(server, count):
    return server.log.count(REPLACED) >= count


ONE, TWO = (("--threads=1", f"--replicas={count}") for count in (1, 2))
SOON = f"--replica-timeout={REPLICA_TIMEOUT}"


@pytest.mark.parametrize(
    ("strike", "flags", "faults", "losses"),  # so many strikes, with each of which so many replicas are certainly lost
    [
        pytest.param(kill, ONE, FAULTS, 1, id="the one is killed"),
        pytest.param(kill, TWO, FAULTS, 1, id="one of two is killed"),
        pytest.param(hang, (*ONE, SOON), FEWER, 1, id="the one hangs"),
        pytest.param(hang, (*TWO, SOON), FEWER, 1, id="one of two hangs"),
        pytest.param(slow_down, (), FEWER, 0, id="one is slow"),
        pytest.param(starve, (), FEWER, 0, id="one gets no more memory"),
    ],
)
async def test_a_replica_that_is_struck_under_load_loses_nothing(start, oracle, figures, strike, flags, faults, losses):
    """Again and again, whenever the server has all its replicas."""
    back = True
    with start(*flags) as server, bystander(server.address) as seen:
        chaos = Chaos(server)
        async with Load(server.address, oracle, CALLERS, timeout=60) as load:
            for number in range(1, faults + 1):
                await load.wait_for_answers(BETWEEN)
                await chaos.pause(*PAUSE)
                await strike(chaos)
                replaced = partial(has_replaced, server, number * losses)
                back = await chaos.recovered(RECOVERY) and await within(RECOVERY, replaced)
                if not back:
                    break
            if back:
                await load.wait_for_answers(BETWEEN)
        is_alive = server.is_alive
    figures.add(callers=CALLERS, **chaos.figures, all_back=back, server_alive=is_alive, **load.figures, **seen.figures)
    assert is_alive
    assert back
    assert (load.lost, load.refused) == (0, {})
    assert load.answered > 0
    assert set(seen.failed) <= ({"health NOT_SERVING"} if "--replicas=1" in flags else set())


async def test_a_killed_replica_repeats_no_byte_of_a_stream(server, oracle, figures):
    cases = [case for case in oracle.cases if case.is_stream]
    chaos = Chaos(server)
    cut, right, failed = 0, 0, []
    async with connected(server.address) as stub:
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
        async with connected(server.address) as stub, Load(server.address, oracle, callers=4) as load:
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
