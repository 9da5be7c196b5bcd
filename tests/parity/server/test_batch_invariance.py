"""What is decoded for a sentence does not depend on its batch, with any model and precision, on any threads."""

import random
from typing import Any

import pytest

from helpers.batch_invariance import Bag, check, differences
from helpers.bundles import SOURCES, random_bundle
from helpers.demo import demo_in_fp32
from helpers.driver import BundleDecoder
from helpers.generate_parity import RANDOM_MODELS
from helpers.tatoeba import tatoeba
from translane_server.bundle.bundle import load_bundle
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import AllThreads, Sessions
from translane_server.text.tokenizer import load_tokenizer

pytestmark = pytest.mark.slow

WIDE = {"eos_bias": 1.5, "d_model": 256, "ffn_size": 1024, "heads": 16}


def bag(bundle, texts, seed):
    return Bag(bundle, load_tokenizer(bundle).encode(texts), seed)


@pytest.mark.parametrize(
    ("config", "precision", "threads"),
    [
        *((RANDOM_MODELS[name], "fp32", 1) for name in ("post-norm", "pre-norm", "recurrent unit")),
        (RANDOM_MODELS["post-norm"], "int8", 2),
        (WIDE, "fp32", 2),
        (WIDE, "int8", 1),
    ],
)
def test_random_model(tmp_path, config, precision, threads):
    bundle = load_bundle(random_bundle(tmp_path / "bundle", export={"precision": precision}, **config))
    shuffle = random.Random(0)
    texts = ["".join(shuffle.sample("".join(SOURCES), shuffle.randint(1, 50))) for _ in range(200)]
    check(bundle, bag(bundle, texts, seed=0).sentences(112), threads=threads)


def test_demo_model():
    bundle = load_bundle(demo_in_fp32())
    check(bundle, bag(bundle, tatoeba()[0], seed=1).sentences(112), threads=2)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_steps_on_more_threads_now_and_then(tmp_path, precision):
    bundle = load_bundle(random_bundle(tmp_path / "bundle", export={"precision": precision}, **WIDE))
    shuffle = random.Random(0)
    texts = [text * shuffle.randint(1, 4) for text in SOURCES * 4]
    sentences = bag(bundle, texts, seed=2).sentences(80)
    asked = []

    def are_free():
        asked.append(shuffle.random() < 0.5)
        return asked[-1]

    def on_more_threads(bundle, **sizes):
        more = AllThreads(Sessions(bundle, threads=4, plain_steps_only=True), are_free)
        return OrtBackend(Sessions(bundle, threads=1), all_threads=more, **sizes)

    sizes: dict[str, Any] = {"rows": 24, "target_capacity": 54}
    with BundleDecoder(bundle, **sizes) as driver:
        expected = driver.together(sentences)
    with BundleDecoder(bundle, open_backend=on_more_threads, **sizes) as driver:
        for seed in range(3):
            assert differences(driver.arriving(sentences, seed), expected, sentences) == []
    assert min(asked.count(True), asked.count(False)) > 30
