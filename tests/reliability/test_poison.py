"""A sentence that kills every replica that takes it is refused alone, and nobody else notices."""

import asyncio
import os
from collections import Counter
from pathlib import Path

import grpc
import pytest

from helpers.reliability.failures import failure_of
from helpers.reliability.form import form
from helpers.reliability.load import CHANNEL_OPTIONS
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc

pytestmark = pytest.mark.timeout(120)

TESTS = Path(__file__).parents[1]
POISON = "%"
SECRET = "nobody may read this"
CALLERS = 8
POISONED = form(1, 4)
BETWEEN = 40.0  # poisoned sentences [seconds]; a server ends that loses many replicas in a short time


@pytest.mark.slow
async def test_a_poisoned_sentence_is_refused_alone(start, figures):
    environment = {
        "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
        "FAKE_POISON": POISON,
        "FAKE_STEP_SECONDS": "0.005",
    }
    program = [str(TESTS / "fakes" / "command.py")]
    flags = ["x", "--replicas=2", "--threads=1", "--log-level=debug"]
    ends: list[str] = []
    others: Counter[str] = Counter()
    is_over = asyncio.Event()

    async def innocent(stub, number):
        while not is_over.is_set():
            texts = [f"innocent {number} {each}" for each in range(3)]
            try:
                response = await stub.Translate(pb.TranslateRequest(texts=texts), timeout=60)
            except grpc.aio.AioRpcError as error:
                others[failure_of(error).name] += 1
                continue
            got = [translation.hypotheses[0].text for translation in response.translations]
            others["right" if got == texts else "wrong"] += 1

    with start(*flags, program=program, environment=environment) as server:
        async with grpc.aio.insecure_channel(server.address, options=CHANNEL_OPTIONS) as channel:
            stub = translation_pb2_grpc.TranslationServiceStub(channel)
            innocents = [asyncio.create_task(innocent(stub, number)) for number in range(CALLERS)]
            for number in range(POISONED):
                await asyncio.sleep(BETWEEN if number else 0.5)
                try:
                    await stub.Translate(pb.TranslateRequest(texts=[f"{SECRET} {POISON}"]), timeout=60)
                    ends.append("OK")
                except grpc.aio.AioRpcError as error:
                    ends.append(failure_of(error).name)
            before = others["right"]
            while others["right"] < before + 20 and server.is_alive:  # noqa: ASYNC110 the callers count
                await asyncio.sleep(0.02)
            is_over.set()
            await asyncio.gather(*innocents)
        metrics = server.metrics() if server.is_alive else {}
        log = server.log
    lost = sum(value for name, value in metrics.items() if name.startswith("translane_replica_losses_total"))
    refused = [line for line in log.splitlines() if "is refused: a sentence of this request ends" in line]
    figures.add(poisoned=ends, replicas_lost=lost, others=dict(others), log_lines=len(refused))
    assert ends == ["INTERNAL(POISONED)"] * POISONED
    assert 2 * POISONED <= lost <= 4 * POISONED
    assert set(others) == {"right"}
    assert len(refused) == POISONED
    assert SECRET not in log
