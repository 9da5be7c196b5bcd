"""Checks that what is decoded for a sentence does not depend on what it is batched with, however each is decoded.

A bag of every kind of request goes through the real engine loop and backend: one at a time, all at once, and joining a
running batch of few or many rows in random order at random moments. Tokens, scores, log-probabilities and alignments
are the same to the last bit.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

from helpers.driver import BundleDecoder
from translane_server.bundle.bundle import Bundle
from translane_server.engine.options import DecodingOptions, RequiredPhrase, Sampling
from translane_server.engine.sequence import Hypothesis, Sentence
from translane_server.text.tokenizer import load_tokenizer

CAPACITY = 64  # tokens of a source
BEAM = 6
ROWS = (BEAM, 13, 48)  # the fewest that hold the widest search, and more


_Kind = tuple[dict[str, Any], dict[str, Any]]  # options of a sentence, and what else it has
_Results = Sequence[Sequence[Hypothesis]]


class Bag:
    """Random sentences of every kind over the vocabulary of a bundle; most have a shortlist, if the bundle has one."""

    def __init__(self, bundle: Bundle, sources: Sequence[Sequence[int]], seed: int) -> None:
        self.pick = random.Random(seed)
        self.sources = [ids for ids in sources if len(ids) <= CAPACITY]
        self.surfaces = load_tokenizer(bundle).target_surfaces
        self.eos = bundle.manifest.special_ids.eos
        self.ids = [i for i in range(len(self.surfaces)) if i != self.eos and self.surfaces[i].strip()]
        self.has_attention = bundle.manifest.alignment is not None
        self.has_shortlist = bundle.manifest.shortlist is not None

    def sentences(self, count: int) -> list[Sentence]:
        kinds = [kind for name, kind in vars(Bag).items() if name.startswith("_kind_")]
        return [self.sentence(kinds[number % len(kinds)]) for number in range(count)]

    def sentence(self, kind: Callable[[Any], _Kind]) -> Sentence:
        pick = self.pick
        rest: dict[str, Any] = {
            "max_length": pick.choice([pick.randint(1, 18), 48]),
            "min_length": pick.choice([0, 0, pick.randint(1, 8)]),
        }
        rest["min_length"] = min(rest["min_length"], rest["max_length"])
        rest["shortlist"] = self.has_shortlist and pick.random() < 0.8
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

    def phrase(self, length: int) -> bytes:
        return b"".join(self.surfaces[token] for token in self.pick.choices(self.ids, k=length)).strip()

    def beams(self) -> dict[str, Any]:
        size = self.pick.randint(2, BEAM)
        return {
            "beam_size": size,
            "num_hypotheses": self.pick.randint(1, size),
            "length_penalty": self.pick.choice([0.0, 0.6, 1.0, 1.4]),
            "early_stopping": self.pick.random() < 0.5,
        }

    def _kind_greedy(self) -> _Kind:
        return {}, {}

    def _kind_beams(self) -> _Kind:
        return self.beams(), {}

    def _kind_sampling(self) -> _Kind:
        sampling = Sampling(
            seed=self.pick.randrange(2**64),
            temperature=self.pick.uniform(0.5, 1.5),
            top_k=self.pick.choice([0, 1, 5, 20]),
            top_p=self.pick.choice([1.0, 0.9, 0.5]),
        )
        return {"sampling": sampling, "num_hypotheses": self.pick.randint(1, 4)}, {}

    def _kind_patience_and_coverage(self) -> _Kind:
        coverage = self.pick.choice([0.0, 0.3]) if self.has_attention else 0.0
        return {**self.beams(), "patience": self.pick.choice([0.5, 2.0]), "coverage_penalty": coverage}, {}

    def _kind_terminology(self) -> _Kind:
        phrases = [
            tuple(self.pick.choices(self.ids, k=self.pick.randint(1, 3))) for _ in range(self.pick.randint(1, 2))
        ]
        required = tuple(
            RequiredPhrase(b"".join(self.surfaces[token] for token in phrase).strip(), phrase) for phrase in phrases
        )
        free = {"max_length": 18, "suppressed_phrases": (), "suppressed_ids": (), "no_repeat_ngram_size": 0}
        return {**self.beams(), **free}, {"required_phrases": required}

    def _kind_alternatives(self) -> _Kind:
        return {"alternatives": True, "num_hypotheses": self.pick.randint(2, 5)}, {}

    def _kind_scoring(self) -> _Kind:
        target = (*self.pick.choices(self.ids, k=self.pick.randint(0, 15)), self.eos)
        plain = {"max_length": 0, "min_length": 0, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0}
        return {**plain, "suppressed_ids": (), "suppressed_phrases": ()}, {"forced_ids": target}


def check_phrases(sentences: Sequence[Sentence], results: _Results, surfaces: Sequence[bytes]) -> None:
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


def differences(results: _Results, expected: _Results, sentences: Sequence[Sentence]) -> list[Any]:
    """Sentences whose hypotheses are not the same, bit for bit."""
    return [
        (sentence, found, alone)
        for sentence, found, alone in zip(sentences, results, expected, strict=True)
        if found != alone
    ]


def check(bundle: Bundle, sentences: Sequence[Sentence], *, threads: int) -> _Results:
    """Check that the sentences are decoded alone as in every batch, and return their hypotheses."""
    sizes: dict[str, Any] = {"source_capacity": CAPACITY, "target_capacity": 54, "threads": threads}
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
    return alone
