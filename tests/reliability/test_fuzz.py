"""Random requests, by type and by bytes: each is answered or refused by the server itself, and nothing breaks."""

import asyncio
import random
from collections import Counter

import grpc
import pytest

from helpers.reliability.bounds import GAP
from helpers.reliability.failures import failure_of
from helpers.reliability.form import form
from helpers.reliability.fuzz import REQUESTS, random_bytes, random_request
from helpers.reliability.load import CHANNEL_OPTIONS, Load
from helpers.reliability.probe import bystander

pytestmark = pytest.mark.timeout(form(150, 1200))

COUNT = form(500, 10_000)
AT_ONCE = 16
ALLOWED = {
    "OK",
    "INVALID_ARGUMENT(INVALID_FIELD)",
    "NOT_FOUND(MODEL_NOT_FOUND)",
    "RESOURCE_EXHAUSTED(QUEUE_FULL)",
}


async def send(channel, name, payload):
    """How a call with these bytes as its message ended."""
    path = f"/translane.v1.TranslationService/{name}"
    try:
        if name in ("TranslateStream", "TranslateDocument"):
            async for _ in channel.unary_stream(path)(payload, timeout=60):
                pass
        else:
            await channel.unary_unary(path)(payload, timeout=60)
    except grpc.aio.AioRpcError as error:
        return failure_of(error).name
    return "OK"


def by_type(name, pick):
    return random_request(name, pick).SerializeToString()


@pytest.mark.slow
@pytest.mark.parametrize("made", [by_type, random_bytes], ids=["by type", "by bytes"])
async def test_random_requests(shared_server, oracle, figures, made):
    pick = random.Random(13)
    names = [pick.choice([*REQUESTS]) for _ in range(COUNT)]
    waiting = iter([(name, made(name, pick)) for name in names])
    outcomes: Counter[str] = Counter()
    culprits: dict[str, str] = {}

    async def caller(channel):
        for name, payload in waiting:
            outcome = await send(channel, name, payload)
            outcomes[outcome] += 1
            if outcome not in ALLOWED:
                culprits.setdefault(outcome, f"{name} {payload.hex()[:400]}")

    with bystander(shared_server.address) as seen:
        async with grpc.aio.insecure_channel(shared_server.address, options=CHANNEL_OPTIONS) as channel:
            await asyncio.gather(*[caller(channel) for _ in range(AT_ONCE)])
    async with Load(shared_server.address, oracle, callers=4) as load:
        await load.wait_for_answers(20)
    figures.add(
        requests=outcomes.total(),
        outcomes=dict(outcomes),
        right_afterwards=load.answered,
        lost=load.lost,
        **seen.figures,
    )
    assert culprits == {}
    assert outcomes.total() == COUNT
    assert load.lost == 0
    assert not seen.failed
    assert max(seen.health, seen.translate) < GAP
