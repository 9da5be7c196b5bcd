"""Models beside idle ones get more replicas, and answer what they answer without."""

import asyncio
import random
import shutil
from typing import Any

import pytest

from helpers.bundles import SOURCES, random_bundle
from helpers.http_calls import until
from helpers.real_server import serving_models
from translane.v1 import translation_pb2 as pb
from translane_server.bundle.bundle import load_bundle
from translane_server.settings.server_settings import ServerSettings

pytestmark = pytest.mark.slow

CALLERS, REQUESTS = 6, 8
PATIENCE = 300  # seconds, on a busy machine
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"beam_size": 4},
    {"num_hypotheses": 3, "top_k": 8, "temperature": 1.5, "seed": 7},
)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return load_bundle(random_bundle(tmp_path_factory.mktemp("replicas") / "bundle", eos_bias=2.0))


def make_requests(seed):
    pick = random.Random(seed)
    return [
        pb.TranslateRequest(
            texts=pick.sample(SOURCES, pick.randint(1, len(SOURCES))),
            options=pb.DecodingOptions(return_token_scores=True, **pick.choice(OPTIONS)),
            priority=pick.randrange(3),
        )
        for _ in range(REQUESTS)
    ]


async def test_a_model_beside_an_idle_one_gets_more_replicas_and_answers_the_same(bundle, tmp_path):
    for name in ("hot", "idle"):
        shutil.copytree(bundle.folder, tmp_path / name)
    settings = ServerSettings(models=tmp_path, port=0, metrics_port=0, device="cpu", max_queue_size=9999)
    requests = [request for seed in range(CALLERS) for request in make_requests(seed)]
    for request in requests:
        request.model = "hot"
    async with serving_models(settings, cpus=2) as running:

        def rows(model):
            return sum(running.value("translane_rows", model=model, state=each) or 0 for each in ("active", "free"))

        expected = [(await running.stub.Translate(request)).translations for request in requests]
        before = {model: rows(model) for model in ("hot", "idle")}
        have_grown = asyncio.Event()

        async def ask():
            while True:
                enough = have_grown.is_set()
                found = await asyncio.gather(*[running.stub.Translate(request, timeout=60) for request in requests])
                assert [answer.translations for answer in found] == expected
                if enough:
                    return

        async def watch():
            await until(lambda: rows("hot") != before["hot"], PATIENCE)
            have_grown.set()

        await asyncio.gather(ask(), ask(), ask(), watch())
        assert rows("idle") == before["idle"]


@pytest.mark.parametrize("memory", [10**6, 10**12])
async def test_no_model_lends_cpus_where_the_memory_is_not_enough(bundle, tmp_path, monkeypatch, caplog, memory):
    for name in ("one", "other"):
        shutil.copytree(bundle.folder, tmp_path / name)
    monkeypatch.setattr("translane_server.models.build.available_memory", lambda: memory)
    caplog.set_level("INFO")
    async with serving_models(ServerSettings(models=tmp_path, port=0, metrics_port=0, device="cpu"), cpus=2):
        assert ("and 1 more while CPUs are idle" in caplog.text) == (memory > 10**6)
