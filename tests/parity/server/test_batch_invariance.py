"""What is decoded for a sentence does not depend on what it is batched with: same tokens, and bit-identical scores.

The sentences go through the real engine and backend: one at a time, all at once, and joining a running batch in random
order at random moments.
"""

import gzip
import queue
import random
import time
from pathlib import Path

import pytest

from helpers.bundles import SOURCES, random_bundle
from translane_server.bundle import load_bundle
from translane_server.engine import Engine
from translane_server.options import DecodingOptions
from translane_server.runtime.ort import OrtBackend
from translane_server.request import Request, Sentence
from translane_server.runtime.sessions import Sessions
from translane_server.text.tokenizer import load_tokenizer
from translane_server.vocabulary import TargetVocabulary

ROOT = Path(__file__).resolve().parents[3]
DEMO = ROOT / "models" / "zh-en"
TEST_SPLIT = ROOT.parent / "shared" / "data" / "tatoeba-zh-en" / "test.tsv.gz"
ROWS = 24
MAX_LENGTH = 48


class Decoder:
    """An engine on a bundle, that decodes lists of source ids."""

    def __init__(self, bundle, threads):
        self.steps = []
        ids = bundle.manifest.special_ids
        self.engine = Engine(
            self.open_backend(Sessions(bundle, threads=threads)),
            vocabulary=TargetVocabulary(ids.decoder_start, ids.eos),
            encode_tokens=512,
        )
        self.engine.start()

    def open_backend(self, sessions):
        backend = OrtBackend(
            sessions,
            rows=ROWS,
            source_capacity=min(64, sessions.bundle.manifest.limits.source_tokens),
            target_capacity=MAX_LENGTH,
        )
        step = backend.decode_step
        backend.decode_step = lambda tokens, *rest: (self.steps.append(len(tokens)), step(tokens, *rest))[1]
        return backend

    def submit(self, number, source, answers):
        on_done = lambda result: answers.put((number, result))  # noqa: E731
        self.engine.submit(Request([Sentence(source, DecodingOptions(MAX_LENGTH))], on_done))

    def collect(self, count, answers):
        results = dict(answers.get(timeout=120) for _ in range(count))
        return [
            (results[number][0].hypotheses[0].token_ids, results[number][0].hypotheses[0].score)
            for number in range(count)
        ]

    def one_by_one(self, sources):
        answers = queue.SimpleQueue()
        results = []
        for source in sources:
            self.submit(0, source, answers)
            results += self.collect(1, answers)
        return results

    def in_order(self, sources, order, pauses=None):
        answers = queue.SimpleQueue()
        for number in order:
            self.submit(number, sources[number], answers)
            if pauses is not None:
                time.sleep(pauses.expovariate(2000))  # half a millisecond on average: a fraction of a step
        return self.collect(len(sources), answers)


def differences(results, expected):
    tokens = sum(ids != other for (ids, _), (other, _) in zip(results, expected, strict=True))
    scores = sum(score != other for (_, score), (_, other) in zip(results, expected, strict=True))
    return {"tokens": tokens, "scores": scores}


def check(bundle, sources, *, threads):
    decoder = Decoder(bundle, threads)
    try:
        alone = decoder.one_by_one(sources)
        assert set(decoder.steps) == {1}
        decoder.steps.clear()
        everywhere_same = {"tokens": 0, "scores": 0}
        assert differences(decoder.in_order(sources, range(len(sources))), alone) == everywhere_same
        assert max(decoder.steps) == min(ROWS, len(sources))
        for seed in range(3):
            shuffle = random.Random(seed)
            order = shuffle.sample(range(len(sources)), len(sources))
            assert differences(decoder.in_order(sources, order, shuffle), alone) == everywhere_same
        assert len(set(decoder.steps)) > 5, "the batch was to grow and shrink"
        return alone
    finally:
        decoder.engine.stop()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("width", [32, 256])
def test_random_model(tmp_path, width, threads):
    check_random_model(tmp_path, width, threads)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("width", [32, 256])
def test_random_model_in_int8(tmp_path, width, threads):
    check_random_model(tmp_path, width, threads, precision="int8")


def check_random_model(folder, width, threads, **export):
    config = {"d_model": width, "ffn_size": 4 * width, "heads": width // 16}
    bundle = load_bundle(random_bundle(folder / "bundle", eos_bias=2.0, export=export, **config))
    tokenizer = load_tokenizer(bundle)
    shuffle = random.Random(0)
    texts = ["".join(shuffle.sample("".join(SOURCES), shuffle.randint(1, 50))) for _ in range(150)]
    results = check(bundle, tokenizer.encode(texts), threads=threads)
    lengths = {len(ids) for ids, _ in results}
    assert len(lengths) > 5, "sentences were to end at many lengths"


@pytest.mark.skipif(not TEST_SPLIT.exists(), reason="the Tatoeba zh-en test split is not on this machine")
@pytest.mark.skipif(not DEMO.exists(), reason="there is no demo bundle")
def test_demo_model_on_the_test_split():
    bundle = load_bundle(DEMO)
    with gzip.open(TEST_SPLIT, "rt", encoding="utf-8") as lines:
        texts = [line.split("\t")[0] for line in lines]
    assert len(texts) > 1000
    check(bundle, load_tokenizer(bundle).encode(texts), threads=1)
