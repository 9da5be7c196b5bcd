"""A full disk and little memory: the server goes on."""

import asyncio
import resource
import signal
from collections import Counter

import grpc
import psutil
import pytest

from helpers.reliability.bounds import GAP
from helpers.reliability.cases import single
from helpers.reliability.failures import failure_of
from helpers.reliability.form import form
from helpers.reliability.load import CHANNEL_OPTIONS, Load
from helpers.reliability.probe import bystander
from helpers.reliability.resources import MEGABYTE
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc

pytestmark = pytest.mark.timeout(150)

LOG_BLOCKS = 16  # of 512 bytes: the log is full after some calls
HEADROOM = 512 * MEGABYTE  # of address space


@pytest.mark.slow
async def test_a_full_disk_of_the_log_stops_nothing(start, oracle, figures):
    with start("--log-level=debug", limits={"f": LOG_BLOCKS}) as server:
        with bystander(server.address) as seen:
            async with Load(server.address, oracle, callers=8) as load:
                await load.wait_for_answers(form(80, 2000))
        size = len(server.log.encode())
        exit_code = server.terminate()
    figures.add(log_bytes=size, exit_code=exit_code, **load.figures, **seen.figures)
    assert size <= LOG_BLOCKS * 512
    assert load.answered >= 80
    assert load.lost == 0
    assert not seen.failed
    assert exit_code == 0


@pytest.mark.slow
async def test_little_memory_ends_no_call_wrongly(server, oracle, figures):
    most = psutil.Process(server.pid).memory_info().vms + HEADROOM
    resource.prlimit(server.pid, resource.RLIMIT_AS, (most, most))
    request = pb.TranslateRequest(texts=[" " * 3_900] * 256)
    outcomes: Counter[str] = Counter()

    async def call(stub):
        try:
            await stub.Translate(request, timeout=60)
        except grpc.aio.AioRpcError as error:
            failure = failure_of(error)
            outcomes[failure.name if failure.is_refusal else f"bare {failure.name}"] += 1
        else:
            outcomes["OK"] += 1

    with bystander(server.address) as seen:
        async with (
            grpc.aio.insecure_channel(server.address, options=CHANNEL_OPTIONS) as channel,
            Load(server.address, oracle, callers=4) as load,
        ):
            stub = translation_pb2_grpc.TranslationServiceStub(channel)
            await asyncio.gather(*[call(stub) for _ in range(form(800, 2000))])
            await load.wait_for_answers(20)
    figures.add(
        headroom_MiB=HEADROOM // MEGABYTE,
        large_calls=dict(outcomes),
        alive=server.is_alive,
        **load.figures,
        **seen.figures,
    )
    assert server.is_alive
    assert not [name for name in outcomes if name.startswith("bare")]
    assert load.lost == 0
    assert not seen.failed
    assert max(seen.health, seen.translate) < GAP


@pytest.mark.slow
async def test_a_log_that_nobody_reads_stops_nothing(start, oracle, figures):
    """A pipe takes 64 KiB. Then its writer waits, unless it takes care."""
    with start("--log-level=debug", pipes_log=True) as server:
        server.log_reader.send_signal(signal.SIGSTOP)
        with bystander(server.address) as seen:
            async with Load(server.address, oracle, callers=4, timeout=10, cases=[single()]) as load:
                await load.wait_for_answers(form(500, 4000), seconds=form(20, 60))
        exit_code = server.terminate(10)
    figures.add(exit_code=exit_code, **load.figures, **seen.figures)
    assert load.answered >= form(500, 4000)
    assert load.lost == 0
    assert not seen.failed
    assert exit_code == 0
