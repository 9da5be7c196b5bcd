"""The log-probabilities that the engine reports are those of PyTorch under teacher forcing, to 1e-4.

Of translations that are scored, and of those that were decoded, whatever the options that chose their tokens.
"""

import gzip
import random
from typing import Any

import pytest

from helpers.demo import DEMO
from helpers.generate_parity import RANDOM_MODELS, TEST_SPLIT, demo_subject, random_subject
from translane_server.engine.options import DecodingOptions, Sampling
from translane_server.engine.sequence import Sentence

TOLERANCE = 1e-4


def largest_difference(oracle, sentences, results):
    """The largest difference of a token's log-probability over all hypotheses, and how many tokens there are."""
    largest, count = 0.0, 0
    for sentence, hypotheses in zip(sentences, results, strict=True):
        for hypothesis in hypotheses:
            ended = hypothesis.is_complete
            tokens = [*hypothesis.token_ids, *([oracle.eos] if ended else [])]
            expected = oracle.log_probs(sentence.source_ids, tokens).tolist()
            assert len(hypothesis.token_log_probs) == len(expected)
            differences = [abs(a - b) for a, b in zip(hypothesis.token_log_probs, expected, strict=True)]
            largest, count = max([largest, *differences]), count + len(expected)
    return largest, count


def score(subject, pairs):
    """Score (source, target) ids, the end of the sentence added; return the largest difference to PyTorch."""
    sentences = [
        Sentence(source, DecodingOptions(max_length=0), forced_ids=(*target, subject.oracle.eos))
        for source, target in pairs
    ]
    results = subject.driver.together(sentences)
    for (_, target), [hypothesis] in zip(pairs, results, strict=True):
        assert hypothesis.token_ids == tuple(target)
    largest, tokens = largest_difference(subject.oracle, sentences, results)
    print(f"{len(pairs)} pairs, {tokens} tokens: log-probabilities differ by {largest:.2g} at most")
    return largest


@pytest.mark.slow
@pytest.mark.parametrize("model", RANDOM_MODELS)
def test_scores_of_random_targets(model):
    with random_subject(model) as subject:
        pick = random.Random(0)
        ids = [i for i in range(subject.oracle.vocab_size) if i != subject.oracle.eos]
        targets = [pick.choices(ids, k=pick.randint(0, 20)) for _ in subject.sources]
        assert score(subject, list(zip(subject.sources, targets, strict=True))) < TOLERANCE


@pytest.mark.slow
@pytest.mark.skipif(not TEST_SPLIT.exists(), reason="the Tatoeba zh-en test split is not on this machine")
@pytest.mark.skipif(not DEMO.exists(), reason="there is no demo bundle")
def test_scores_of_the_test_splits_translations():
    with demo_subject() as subject:
        with gzip.open(TEST_SPLIT, "rt", encoding="utf-8") as lines:
            source_texts, target_texts = zip(*(line.split("\t")[:2] for line in lines), strict=True)
        tokenizer, capacity = subject.driver.tokenizer, subject.driver.backend.target_capacity
        pairs = zip(tokenizer.encode(source_texts), tokenizer.encode_target(target_texts), strict=True)
        fitting = [(source, target) for source, target in pairs if len(target) < capacity and len(source) <= 64]
        assert len(fitting) > 300
        assert score(subject, fitting[:400]) < TOLERANCE


SEARCHES: dict[str, Any] = {
    "greedy": {},
    "greedy with rules": {"repetition_penalty": 1.7, "no_repeat_ngram_size": 2, "min_length": 4},
    "beams with rules": {"beam_size": 4, "num_hypotheses": 4, "repetition_penalty": 1.7, "suppressed_ids": (7, 8)},
    "sampling": {"sampling": Sampling(seed=1, temperature=1.5, top_k=6), "num_hypotheses": 2},
    "alternatives": {"alternatives": True, "num_hypotheses": 3},
}


@pytest.mark.slow
@pytest.mark.parametrize("search", SEARCHES)
def test_log_probabilities_of_decoded_tokens_are_the_models_alone(search):
    with random_subject("post-norm") as subject:
        sentences = [
            Sentence(source, DecodingOptions(max_length=12, **SEARCHES[search]), forced_ids=(9, 5))
            for source in subject.sources[:60]
        ]
        results = subject.driver.together(sentences)
        assert largest_difference(subject.oracle, sentences, results)[0] < TOLERANCE
        if "beam_size" not in SEARCHES[search]:
            for hypotheses in results:
                for hypothesis in hypotheses:
                    assert hypothesis.score == pytest.approx(sum(hypothesis.token_log_probs[2:]), abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("search", ["greedy with rules", "beams with rules", "sampling", "alternatives"])
def test_scoring_a_hypothesis_gives_its_log_probabilities_and_alignment(search):
    """However rows were copied and moved while it was found."""
    with random_subject("pre-norm") as subject:
        assert subject.driver.backend.has_attention
        options = DecodingOptions(max_length=16, alignment=True, **SEARCHES[search])
        sources = subject.sources[:60]
        decoded = subject.driver.together([Sentence(source, options, forced_ids=(9, 5)) for source in sources])
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
            assert len(one.alignment) == len(one.token_ids)
            assert other.alignment == one.alignment
