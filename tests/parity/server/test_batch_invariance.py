"""What is decoded for a sentence does not depend on what it is batched with: same tokens, and bit-identical scores.

The sentences go through the real dispatcher, replica loop and backend: one at a time, all at once, and joining a
running batch in random order at random moments.
"""

import random

import pytest

from helpers.bundles import SOURCES, random_bundle
from helpers.driver import BundleDecoder
from translane_server.bundle.bundle import load_bundle
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Sentence
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import AllThreads, Sessions
from translane_server.text.tokenizer import load_tokenizer

ROWS = 24
OPTIONS = DecodingOptions(max_length=48)


def bundle_of(folder, precision, width):
    config = {"d_model": width, "ffn_size": 4 * width, "heads": width // 16}
    return load_bundle(random_bundle(folder / "bundle", eos_bias=2.0, export={"precision": precision}, **config))


def found(hypotheses):
    return [(best.token_ids, best.score) for (best,) in hypotheses]


def differences(results, expected):
    tokens = sum(ids != other for (ids, _), (other, _) in zip(results, expected, strict=True))
    scores = sum(score != other for (_, score), (_, other) in zip(results, expected, strict=True))
    return {"tokens": tokens, "scores": scores}


def check(bundle, sources, *, threads):
    sentences = [Sentence(source, OPTIONS) for source in sources]
    with BundleDecoder(bundle, threads=threads, rows=ROWS, target_capacity=OPTIONS.max_length) as decoder:
        alone = found(decoder.one_by_one(sentences))
        assert set(decoder.step_rows) == {1}
        decoder.step_rows.clear()
        everywhere_same = {"tokens": 0, "scores": 0}
        assert differences(found(decoder.together(sentences)), alone) == everywhere_same
        assert max(decoder.step_rows) == min(ROWS, len(sources))
        for seed in range(3):
            assert differences(found(decoder.arriving(sentences, seed)), alone) == everywhere_same
        assert len(set(decoder.step_rows)) > 5, "the batch was to grow and shrink"
        return alone


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "width", "threads"), [("fp32", 32, 1), ("fp32", 256, 2), ("int8", 32, 2), ("int8", 256, 1)]
)
def test_random_model(tmp_path, precision, width, threads):
    bundle = bundle_of(tmp_path, precision, width)
    tokenizer = load_tokenizer(bundle)
    shuffle = random.Random(0)
    texts = ["".join(shuffle.sample("".join(SOURCES), shuffle.randint(1, 50))) for _ in range(150)]
    results = check(bundle, tokenizer.encode(texts), threads=threads)
    lengths = {len(ids) for ids, _ in results}
    assert len(lengths) > 5, "sentences were to end at many lengths"


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_steps_on_more_threads_now_and_then(tmp_path, precision):
    bundle = bundle_of(tmp_path, precision, width=256)
    shuffle = random.Random(0)
    sources = load_tokenizer(bundle).encode([text * shuffle.randint(1, 4) for text in SOURCES * 4])
    sentences = [Sentence(source, OPTIONS) for source in sources]
    asked = []

    def are_free():
        asked.append(shuffle.random() < 0.5)
        return asked[-1]

    def on_more_threads(bundle, **sizes):
        more = AllThreads(Sessions(bundle, threads=4, plain_steps_only=True), are_free)
        return OrtBackend(Sessions(bundle, threads=1), all_threads=more, **sizes)

    with BundleDecoder(bundle, rows=ROWS, target_capacity=OPTIONS.max_length) as decoder:
        expected = found(decoder.together(sentences))
    sizes = {"rows": ROWS, "target_capacity": OPTIONS.max_length}
    with BundleDecoder(bundle, open_backend=on_more_threads, **sizes) as decoder:
        for seed in range(3):
            assert differences(found(decoder.arriving(sentences, seed)), expected) == {"tokens": 0, "scores": 0}
    assert min(asked.count(True), asked.count(False)) > 30
