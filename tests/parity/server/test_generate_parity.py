"""Greedy and beam search are Hugging Face's `generate` on the same weights: token for token, and score for score.

Option sets are random, and always the same ones; `TRANSLANE_PARITY_EXAMPLES=500` makes more of them. A sentence is a
tie where `generate` itself had to choose between scores that differ by rounding alone.
"""

import os
import random
from typing import Any

import pytest
import torch

from helpers.generate_parity import RANDOM_MODELS, count, demo_subject, random_subject
from translane_server.engine.options import DecodingOptions, Sampling
from translane_server.engine.sequence import Sentence

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("TRANSLANE_PARITY_EXAMPLES", "0"))


def check(subject, *, examples, sentences):
    comparison = count(subject, examples=EXAMPLES or examples, sentences=sentences)
    print(comparison)
    assert not comparison.mismatches
    assert comparison.sentences >= examples * sentences
    assert comparison.ties <= max(1, comparison.sentences // 100)


@pytest.mark.parametrize("model", RANDOM_MODELS)
def test_random_models(model):
    with random_subject(model) as subject:
        check(subject, examples=25, sentences=12)


def test_demo_model():
    with demo_subject() as subject:
        check(subject, examples=8, sentences=8)


@pytest.mark.parametrize(
    "rules", [{}, {"repetition_penalty": 1.4, "no_repeat_ngram_size": 2, "min_length": 3}], ids=str
)
def test_alternatives_are_the_best_first_tokens_each_gone_on_greedily(rules):
    count, length, forced = 4, 12, (9, 5)
    options = DecodingOptions(max_length=length, alternatives=True, num_hypotheses=count, **rules)
    with random_subject("post-norm") as subject:
        sentences = [Sentence(source, options, forced) for source in subject.sources[:40]]
        for sentence, found in zip(sentences, subject.driver.together(sentences), strict=True):
            assert len(found) == count
            wanted: set[tuple[tuple[int, ...], bool]] = set()
            for first in best_next_tokens(subject.oracle, sentence, rules, count):
                if first == subject.oracle.eos:
                    wanted.add((forced, True))
                    continue
                rest = {**rules, "min_length": max(0, rules.get("min_length", 0) - 1)}
                one = Sentence(sentence.source_ids, DecodingOptions(max_length=length - 1, **rest), (*forced, first))
                [[best]] = [generated.hypotheses for generated in subject.oracle.generate([one])]
                wanted.add((best.token_ids, best.is_complete))
            assert {(hypothesis.token_ids, hypothesis.is_complete) for hypothesis in found} == wanted
            scores = [hypothesis.score or 0.0 for hypothesis in found]
            assert scores == sorted(scores, reverse=True)


def best_next_tokens(oracle, sentence, rules, count):
    """The first tokens that Hugging Face's processors rank highest."""
    fed = [oracle.decoder_start, *sentence.forced_ids]
    processors = oracle.processors(
        DecodingOptions(max_length=1, **{**rules, "min_length": 1 if rules else 0}), len(fed)
    )
    logits = oracle.logits(sentence.source_ids, fed)[-1:]
    return processors(torch.tensor([fed]), logits)[0].topk(count).indices.tolist()


@pytest.mark.parametrize("model", RANDOM_MODELS)
def test_scores_of_random_targets_are_pytorchs_under_teacher_forcing(model):
    with random_subject(model) as subject:
        pick = random.Random(0)
        ids = [i for i in range(subject.oracle.vocab_size) if i != subject.oracle.eos]
        targets = [pick.choices(ids, k=pick.randint(0, 20)) for _ in subject.sources]
        sentences = [
            Sentence(source, DecodingOptions(max_length=0), forced_ids=(*target, subject.oracle.eos))
            for source, target in zip(subject.sources, targets, strict=True)
        ]
        found = subject.driver.together(sentences)
        for source, target, [hypothesis] in zip(subject.sources, targets, found, strict=True):
            assert (hypothesis.token_ids, hypothesis.is_complete) == (tuple(target), True)
            expected = subject.oracle.log_probs(source, [*target, subject.oracle.eos]).tolist()
            assert hypothesis.token_log_probs == pytest.approx(expected, rel=0, abs=1e-4)


SEARCHES: dict[str, Any] = {
    "greedy": {},
    "greedy with rules": {"repetition_penalty": 1.7, "no_repeat_ngram_size": 2, "min_length": 4},
    "beams with rules": {"beam_size": 4, "num_hypotheses": 4, "repetition_penalty": 1.7, "suppressed_ids": (7, 8)},
    "sampling": {"sampling": Sampling(seed=1, temperature=1.5, top_k=6), "num_hypotheses": 2},
    "alternatives": {"alternatives": True, "num_hypotheses": 3},
}


@pytest.mark.parametrize("search", SEARCHES)
def test_scoring_a_hypothesis_gives_its_log_probabilities_and_alignment(search):
    """However rows were copied and moved while it was found."""
    with random_subject("pre-norm") as subject:
        assert subject.driver.backend.has_attention
        options = DecodingOptions(max_length=16, alignment=True, **SEARCHES[search])
        sources = subject.sources[:60]
        decoded = subject.driver.together([Sentence(source, options, forced_ids=(9, 5)) for source in sources])
        for hypotheses in decoded:
            scores = [hypothesis.score or 0.0 for hypothesis in hypotheses]
            assert scores == sorted(scores, reverse=True)
        found = [(source, one) for source, hypotheses in zip(sources, decoded, strict=True) for one in hypotheses]
        again = subject.driver.together(
            [
                Sentence(
                    source,
                    DecodingOptions(max_length=0, alignment=True),
                    forced_ids=(*one.token_ids, subject.oracle.eos)[: len(one.token_log_probs)],
                )
                for source, one in found
            ]
        )
        for (_, one), [other] in zip(found, again, strict=True):
            assert other.token_log_probs == pytest.approx(one.token_log_probs, abs=1e-5)
            if "beam_size" not in SEARCHES[search]:
                assert one.score == pytest.approx(sum(one.token_log_probs[2:]), abs=1e-5)
            assert len(one.alignment) == len(one.token_ids)
            assert other.alignment == one.alignment
