"""Sentences that kill every worker that takes them are refused alone, and nobody else notices."""

import asyncio
import contextlib
import statistics
import time
from collections import Counter

import grpc
import pytest

from helpers.reliability.failures import failure_of
from helpers.reliability.form import form
from helpers.reliability.load import CHANNEL_OPTIONS
from helpers.server_process import fake_model
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc

pytestmark = pytest.mark.timeout(form(120, 450))

POISON = "%"
SECRET = "nobody may read this"
CALLERS = 16
SECONDS = form(6, 300)  # in which a poisoned text comes each second
DEADLINE = 60.0  # of each call [seconds]


@contextlib.asynccontextmanager
async def stub_of(server):
    async with grpc.aio.insecure_channel(server.address, options=CHANNEL_OPTIONS) as channel:
        yield translation_pb2_grpc.TranslationServiceStub(channel)


@pytest.mark.slow
@pytest.mark.parametrize("texts", ["one text", "other texts"])
async def test_poisoned_texts_each_second_are_refused_alone(start, figures, texts):
    flags = ["x", "--replicas=2", "--threads=1", "--log-level=debug", "--caller-header=x-caller"]
    ends: Counter[str] = Counter()
    others: Counter[str] = Counter()
    taken: list[float] = []
    is_over = asyncio.Event()

    async def innocent(stub, number):
        for each in range(1_000_000):
            if is_over.is_set():
                return
            text, began = f"innocent {number} {each}", time.monotonic()
            try:
                request = pb.TranslateRequest(texts=[text])
                response = await stub.Translate(request, timeout=DEADLINE, metadata=[("x-caller", f"caller {number}")])
            except grpc.aio.AioRpcError as error:
                others[failure_of(error).name] += 1
                continue
            taken.append(time.monotonic() - began)
            others["right" if response.translations[0].hypotheses[0].text == text else "wrong"] += 1

    async def poison(stub, number):
        text = f"{SECRET} {POISON} {number if texts == 'other texts' else ''}"
        try:
            request = pb.TranslateRequest(texts=[text])
            await stub.Translate(request, timeout=DEADLINE, metadata=[("x-caller", "poisoner")])
            ends["OK"] += 1
        except grpc.aio.AioRpcError as error:
            ends[failure_of(error).name] += 1

    with start(*flags, **fake_model(FAKE_POISON=POISON, FAKE_STEP_SECONDS="0.005")) as server:
        async with stub_of(server) as stub:
            innocents = [asyncio.create_task(innocent(stub, number)) for number in range(CALLERS)]
            poisons = []
            for number in range(SECONDS):
                poisons.append(asyncio.create_task(poison(stub, number)))
                await asyncio.sleep(1.0)
            await asyncio.gather(*poisons)
            before = others["right"]
            while others["right"] < before + 20 and server.is_alive:  # noqa: ASYNC110 the callers count
                await asyncio.sleep(0.02)
            is_over.set()
            await asyncio.gather(*innocents)
        metrics = server.metrics() if server.is_alive else {}
        log = server.log
    lost = sum(value for name, value in metrics.items() if name.startswith("translane_replica_losses_total"))
    figures.add(
        poisoned=dict(ends),
        replicas_lost=lost,
        others=dict(others),
        median_ms=1000 * statistics.median(taken),
        longest_ms=1000 * max(taken),
    )
    assert ends == {"INTERNAL(POISONED)": SECONDS}
    assert set(others) == {"right"}
    assert 2 <= lost <= 4 * SECONDS
    if texts == "one text":
        assert lost <= 12, "it is known once it was refused"
    assert SECRET not in log
