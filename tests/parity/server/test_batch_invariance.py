"""What is decoded for a sentence does not depend on what it is batched with, whichever way each of them is decoded.

A bag of every kind of request goes through the real engine loop and backend: one at a time, all at once, and joining a
running batch of few or many rows in random order at random moments. Tokens, scores, log-probabilities and alignments
are the same to the last bit.
"""

import gzip
import random
from typing import Any

import pytest

from helpers.bundles import SOURCES, random_bundle
from helpers.demo import DEMO, demo_in_fp32
from helpers.driver import BundleDecoder
from helpers.generate_parity import RANDOM_MODELS, TEST_SPLIT
from translane_server.bundle.bundle import load_bundle
from translane_server.engine.options import DecodingOptions, RequiredPhrase, Sampling
from translane_server.engine.sequence import Sentence
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import AllThreads, Sessions
from translane_server.text.tokenizer import load_tokenizer

pytestmark = pytest.mark.slow

BEAM = 6
ROWS = (BEAM, 13, 48)  # the fewest that hold the widest search, and more


class Bag:
    """Random sentences of every kind over the vocabulary of a bundle, from sources of up to 64 tokens."""

    def __init__(self, bundle, texts, seed):
        self.pick = random.Random(seed)
        tokenizer = load_tokenizer(bundle)
        self.sources = [ids for ids in tokenizer.encode(texts) if len(ids) <= 64]
        self.surfaces = tokenizer.target_surfaces
        self.eos = bundle.manifest.special_ids.eos
        self.ids = [i for i in range(len(self.surfaces)) if i != self.eos and self.surfaces[i].strip()]
        self.has_attention = bundle.manifest.alignment is not None

    def sentences(self, count):
        kinds = [kind for name, kind in vars(Bag).items() if name.startswith("_kind_")]
        return [self.sentence(kinds[number % len(kinds)]) for number in range(count)]

    def sentence(self, kind):
        pick = self.pick
        rest: dict[str, Any] = {
            "max_length": pick.randint(1, 18),
            "min_length": pick.choice([0, 0, pick.randint(1, 8)]),
        }
        rest["min_length"] = min(rest["min_length"], rest["max_length"])
        rest["alignment"] = self.has_attention and pick.random() < 0.3
        if pick.random() < 0.3:
            rest["repetition_penalty"] = pick.uniform(0.8, 2.0)
        if pick.random() < 0.3:
            rest["no_repeat_ngram_size"] = pick.randint(1, 4)
        if pick.random() < 0.2:
            rest["suppressed_ids"] = tuple(sorted(pick.sample(self.ids, 4)))
        if pick.random() < 0.3:
            rest["suppressed_phrases"] = tuple(self.phrase(2) for _ in range(pick.randint(1, 3)))
        chosen, others = kind(self)
        prefix = tuple(pick.choices(self.ids, k=pick.choice([0, 0, pick.randint(1, 5)])))
        others = {"forced_ids": prefix, **others}
        return Sentence(pick.choice(self.sources), DecodingOptions(**{**rest, **chosen}), **others)

    def phrase(self, length):
        return b"".join(self.surfaces[token] for token in self.pick.choices(self.ids, k=length)).strip()

    def beams(self):
        size = self.pick.randint(2, BEAM)
        return {
            "beam_size": size,
            "num_hypotheses": self.pick.randint(1, size),
            "length_penalty": self.pick.choice([0.0, 0.6, 1.0, 1.4]),
            "early_stopping": self.pick.random() < 0.5,
        }

    def _kind_greedy(self):
        return {}, {}

    def _kind_beams(self):
        return self.beams(), {}

    def _kind_sampling(self):
        sampling = Sampling(
            seed=self.pick.randrange(2**64),
            temperature=self.pick.uniform(0.5, 1.5),
            top_k=self.pick.choice([0, 1, 5, 20]),
            top_p=self.pick.choice([1.0, 0.9, 0.5]),
        )
        return {"sampling": sampling, "num_hypotheses": self.pick.randint(1, 4)}, {}

    def _kind_patience_and_coverage(self):
        coverage = self.pick.choice([0.0, 0.3]) if self.has_attention else 0.0
        return {**self.beams(), "patience": self.pick.choice([0.5, 2.0]), "coverage_penalty": coverage}, {}

    def _kind_terminology(self):
        phrases = [
            tuple(self.pick.choices(self.ids, k=self.pick.randint(1, 3))) for _ in range(self.pick.randint(1, 2))
        ]
        required = tuple(
            RequiredPhrase(b"".join(self.surfaces[token] for token in phrase).strip(), phrase) for phrase in phrases
        )
        free = {"max_length": 18, "suppressed_phrases": (), "suppressed_ids": (), "no_repeat_ngram_size": 0}
        return {**self.beams(), **free}, {"required_phrases": required}

    def _kind_alternatives(self):
        return {"alternatives": True, "num_hypotheses": self.pick.randint(2, 5)}, {}

    def _kind_scoring(self):
        target = (*self.pick.choices(self.ids, k=self.pick.randint(0, 15)), self.eos)
        plain = {"max_length": 0, "min_length": 0, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0}
        return {**plain, "suppressed_ids": (), "suppressed_phrases": ()}, {"forced_ids": target}


def check_phrases(sentences, results, surfaces):
    """What is required occurs, and what is suppressed is not generated."""
    for sentence, hypotheses in zip(sentences, results, strict=True):
        for hypothesis in hypotheses:
            text = b"".join(surfaces[token] for token in hypothesis.token_ids)
            generated = b"".join(surfaces[token] for token in hypothesis.token_ids[len(sentence.forced_ids) :])
            assert all(phrase.text in text for phrase in sentence.required_phrases), (sentence, hypothesis)
            assert not any(phrase in generated for phrase in sentence.options.suppressed_phrases), (
                sentence,
                hypothesis,
            )


def differences(results, expected, sentences):
    """Sentences whose hypotheses are not the same, bit for bit."""
    return [
        (sentence, found, alone)
        for sentence, found, alone in zip(sentences, results, expected, strict=True)
        if found != alone
    ]


def check(bundle, sentences, *, threads):
    sizes = {"source_capacity": 64, "target_capacity": 24, "threads": threads}
    with BundleDecoder(bundle, rows=ROWS[-1], **sizes) as driver:
        alone = driver.one_by_one(sentences)
        check_phrases(sentences, alone, driver.vocabulary.surfaces)
        assert differences(driver.one_by_one(sentences[:40]), alone[:40], sentences[:40]) == []
    for rows in ROWS:
        with BundleDecoder(bundle, rows=rows, **sizes) as driver:
            assert differences(driver.together(sentences), alone, sentences) == []
            assert max(driver.step_rows) > rows - BEAM, "the batch was to be full"
            assert differences(driver.arriving(sentences, seed=rows), alone, sentences) == []
            assert len(set(driver.step_rows)) >= min(rows, 10) // 2, "the batch was to grow and shrink"
    lengths = {len(hypothesis.token_ids) for hypotheses in alone for hypothesis in hypotheses}
    assert len(lengths) > 10, "sentences were to end at many lengths"


WIDE = {"eos_bias": 2.0, "d_model": 256, "ffn_size": 1024, "heads": 16}


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
    texts = ["".join(shuffle.sample("".join(SOURCES), shuffle.randint(1, 24))) for _ in range(200)]
    check(bundle, Bag(bundle, texts, seed=0).sentences(112), threads=threads)


@pytest.mark.skipif(not TEST_SPLIT.exists(), reason="the Tatoeba zh-en test split is not on this machine")
@pytest.mark.skipif(not DEMO.exists(), reason="there is no demo bundle")
def test_demo_model():
    bundle = load_bundle(demo_in_fp32())
    with gzip.open(TEST_SPLIT, "rt", encoding="utf-8") as lines:
        texts = [line.split("\t")[0] for line in lines]
    check(bundle, Bag(bundle, texts, seed=1).sentences(112), threads=2)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_steps_on_more_threads_now_and_then(tmp_path, precision):
    bundle = load_bundle(random_bundle(tmp_path / "bundle", export={"precision": precision}, **WIDE))
    shuffle = random.Random(0)
    texts = [text * shuffle.randint(1, 4) for text in SOURCES * 4]
    sentences = Bag(bundle, texts, seed=2).sentences(80)
    asked = []

    def are_free():
        asked.append(shuffle.random() < 0.5)
        return asked[-1]

    def on_more_threads(bundle, **sizes):
        more = AllThreads(Sessions(bundle, threads=4, plain_steps_only=True), are_free)
        return OrtBackend(Sessions(bundle, threads=1), all_threads=more, **sizes)

    sizes = {"rows": 24, "target_capacity": 48}
    with BundleDecoder(bundle, **sizes) as driver:
        expected = driver.together(sentences)
    with BundleDecoder(bundle, open_backend=on_more_threads, **sizes) as driver:
        for seed in range(3):
            assert differences(driver.arriving(sentences, seed), expected, sentences) == []
    assert min(asked.count(True), asked.count(False)) > 30
