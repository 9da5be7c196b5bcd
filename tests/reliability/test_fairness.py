"""One caller's load does not starve another caller, whatever it asks for and whatever its priority."""

import asyncio
import contextlib
import statistics
import time

import grpc
import pytest

from helpers.failures import failure_of
from helpers.reliability.bounds import HONEST_CALL
from helpers.reliability.cases import SENTENCES, single
from helpers.reliability.form import IS_LONG, form
from helpers.reliability.load import connected
from helpers.reliability.other_address import from_other_address
from translane.v1 import translation_pb2 as pb

pytestmark = pytest.mark.timeout(150)

CALLER = "x-caller"
SECONDS = form(4.0, 40.0)  # of the load; much longer than what is allowed to a single sentence
DEADLINE = 30.0  # of a single sentence [seconds]

LENGTH = form(64, 256)  # of a sample [tokens]
SAMPLES = pb.DecodingOptions(num_hypotheses=16, temperature=2.0, min_length=LENGTH - 6, max_length=LENGTH)
HOGS = {
    "samples": (1, pb.TranslateRequest(texts=[SENTENCES[3]] * 256, options=SAMPLES)),
    "thousands of sentences": (40, pb.TranslateRequest(texts=[*SENTENCES, *SENTENCES] * 6)),
    "long beams": (
        8,
        pb.TranslateRequest(texts=["".join(SENTENCES[:8])] * 64, options=pb.DecodingOptions(beam_size=16)),
    ),
    "large requests of beams": (
        4,
        pb.TranslateRequest(texts=(SENTENCES * 256)[:256], options=pb.DecodingOptions(beam_size=4)),
    ),
    "the highest priority": (12, pb.TranslateRequest(texts=[*SENTENCES] * 4, priority=2**31 - 1)),
}


async def hog(address, request, ends):
    """Ask without a pause until `ends`, as one caller."""
    async with connected(address) as stub:
        while time.monotonic() < ends:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await stub.Translate(request, timeout=ends - time.monotonic() + 0.1, metadata=[(CALLER, "hog")])
                continue
            await asyncio.sleep(0.02)


async def singles(address, ends):
    """Ask for single sentences as another caller. Returns how long each took, and how the others failed."""
    taken: list[float] = []
    failed: list[str] = []
    async with connected(address) as stub:
        for number in range(100_000):
            if time.monotonic() > ends and taken + failed:
                break
            began = time.monotonic()
            try:
                await stub.Translate(single(number).request, timeout=DEADLINE, metadata=[(CALLER, "single")])
                taken.append(time.monotonic() - began)
            except grpc.aio.AioRpcError as error:
                failed.append(failure_of(error).name)
            await asyncio.sleep(0.05)
    return taken, failed


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else None


async def full_rows_time(server):
    """How long samples take that fill all rows at once [seconds]. A sentence that decodes is not interrupted."""
    rows = sum(value for name, value in server.metrics().items() if name.startswith("translane_rows{"))
    texts = HOGS["samples"][1].texts[: int(rows) // SAMPLES.num_hypotheses]
    async with connected(server.address) as stub:
        began = time.monotonic()
        await stub.Translate(pb.TranslateRequest(texts=texts, options=SAMPLES), timeout=60)
    return time.monotonic() - began


async def measured(server, figures, name, address):
    """Measure single sentences that are sent to `address`, alone and beside a hog."""
    callers, request = HOGS[name]
    allowed = max(HONEST_CALL, 2 * await full_rows_time(server)) if name == "samples" else HONEST_CALL
    alone, _ = await singles(address, time.monotonic() + 0.5)
    ends = time.monotonic() + max(SECONDS, 1.5 * allowed)
    hogs = [asyncio.create_task(hog(server.address, request, ends)) for _ in range(callers)]
    await asyncio.sleep(1.0)
    beside, failed = await singles(address, ends)
    await asyncio.gather(*hogs)
    figures.add(
        hogs=callers,
        alone_median_ms=1000 * statistics.median(alone),
        beside_median_ms=1000 * statistics.median(beside) if beside else None,
        beside_95_ms=1000 * percentile(beside, 0.95) if beside else None,
        beside_longest_ms=1000 * max(beside) if beside else None,
        allowed_ms=1000 * allowed,
        answered=len(beside),
        lost=len(failed),
        failed=failed[:3],
    )
    assert failed == []
    assert len(beside) >= max(2, int(SECONDS / allowed) - 1)  # of which at most one is answered when the load ends
    if IS_LONG:
        assert max(beside) < allowed


@pytest.mark.slow
@pytest.mark.parametrize("name", form(["samples", "thousands of sentences", "the highest priority"], HOGS))
async def test_a_single_sentence_beside_a_hog_at_another_address(shared_server, figures, name):
    async with from_other_address(shared_server.address) as address:
        await measured(shared_server, figures, name, address)


@pytest.mark.slow
async def test_a_single_sentence_beside_a_hog_that_a_header_tells_apart(start, figures):
    with start(f"--caller-header={CALLER}") as server:
        await measured(server, figures, "large requests of beams", server.address)
