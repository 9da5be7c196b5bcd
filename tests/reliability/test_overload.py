"""More than the server can do: each call is answered rightly, or refused with RetryInfo."""

import asyncio
import contextlib
from collections import Counter

import grpc
import pytest

from helpers.reliability.bounds import MEMORY_GROWTH
from helpers.reliability.cases import single
from helpers.reliability.failures import failure_of
from helpers.reliability.form import form
from helpers.reliability.load import CHANNEL_OPTIONS, Load
from helpers.reliability.probe import bystander
from helpers.reliability.resources import watched_memory
from translane.v1 import translation_pb2_grpc

pytestmark = pytest.mark.timeout(150)

WAITING = 64  # sentences


@pytest.mark.slow
async def test_ten_times_the_load_is_answered_or_refused(start, oracle, figures):
    callers = form(64, 256)
    many = [case for case in oracle.cases if case.name.startswith("many")]  # 24 texts each
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(start(f"--max-queue-size={WAITING}", f"--max-request-texts={WAITING}"))
        memory = stack.enter_context(watched_memory(server.pid))
        async with Load(server.address, oracle, callers, cases=many) as load:
            await asyncio.sleep(form(2, 60))
    figures.add(callers=callers, sentences_asked=24 * callers, can_wait=WAITING, **load.figures, **memory.figures)
    assert load.answered > 0
    assert load.refused.total() > 0
    assert load.lost == 0
    assert memory.growth < MEMORY_GROWTH


@pytest.mark.slow
@pytest.mark.parametrize("connections", form([10], [1, 10]))
async def test_a_burst_of_calls_is_answered_or_refused(shared_server, figures, connections):
    calls = form(1500, 6000)
    outcomes: Counter[str] = Counter()

    async def call(stub, number):
        try:
            await stub.Translate(single(number).request, timeout=30)
        except grpc.aio.AioRpcError as error:
            failure = failure_of(error)
            outcomes[failure.name if failure.is_refusal else f"bare {failure.name}"] += 1
        else:
            outcomes["OK"] += 1

    channels = [grpc.aio.insecure_channel(shared_server.address, options=CHANNEL_OPTIONS) for _ in range(connections)]
    try:
        stubs = [translation_pb2_grpc.TranslationServiceStub(channel) for channel in channels]
        with bystander(shared_server.address) as seen:
            await asyncio.gather(*[call(stubs[number % connections], number) for number in range(calls)])
        counted = shared_server.metrics()
    finally:
        await asyncio.gather(*[channel.close(None) for channel in channels])
    refused = sum(value for name, value in counted.items() if name.startswith("translane_rejected_total"))
    figures.add(calls=calls, outcomes=dict(outcomes), refusals_counted=refused, **seen.figures)
    assert not [name for name in outcomes if name.startswith("bare")]
    assert outcomes["OK"] > 0
    assert refused >= sum(outcomes.values()) - outcomes["OK"]
