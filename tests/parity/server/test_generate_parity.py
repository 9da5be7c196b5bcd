"""Greedy and beam search are Hugging Face's `generate` on the same weights: token for token, and score for score.

Option sets are random, and always the same ones; `TRANSLANE_PARITY_EXAMPLES=500` makes more of them. A sentence is a
tie where `generate` itself had to choose between scores that differ by rounding alone.
"""

import os

import pytest
import torch

from helpers.demo import DEMO
from helpers.generate_parity import RANDOM_MODELS, TEST_SPLIT, count, demo_subject, random_subject
from translane_export.model.greedy import greedy_decode
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Sentence

EXAMPLES = int(os.environ.get("TRANSLANE_PARITY_EXAMPLES", "0"))


def check(subject, *, examples, sentences):
    tally = count(subject, examples=EXAMPLES or examples, sentences=sentences)
    print(tally)
    assert not tally.mismatches
    assert tally.sentences >= examples * sentences
    assert tally.ties <= max(1, tally.sentences // 100)


@pytest.mark.slow
@pytest.mark.parametrize("model", RANDOM_MODELS)
def test_random_models(model):
    with random_subject(model) as subject:
        check(subject, examples=25, sentences=12)


@pytest.mark.slow
@pytest.mark.skipif(not TEST_SPLIT.exists(), reason="the Tatoeba zh-en test split is not on this machine")
@pytest.mark.skipif(not DEMO.exists(), reason="there is no demo bundle")
def test_demo_model():
    with demo_subject() as subject:
        check(subject, examples=8, sentences=8)


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("model", RANDOM_MODELS)
def test_the_oracle_decodes_greedily_as_pytorch_does(model):
    with random_subject(model) as subject:
        if subject.oracle.decoder_start != subject.oracle.transformer.config.bos_id:
            pytest.skip("the greedy decoder of training starts with bos")
        sources = [list(source) for source in subject.sources[:50]]
        unended = [source[:-1] for source in sources]
        expected = greedy_decode(subject.oracle.transformer, unended, max_length=12)
        for source, tokens in zip(sources, expected, strict=True):
            [generated] = subject.oracle.generate([Sentence(source, DecodingOptions(max_length=12))])
            assert list(generated.hypotheses[0].token_ids) == tokens


@pytest.mark.slow
@pytest.mark.parametrize("model", RANDOM_MODELS)
def test_the_oracle_scores_as_generate_did(model):
    """What decides whether a mismatch is a tie gives `generate`'s own scores."""
    options = DecodingOptions(
        max_length=10, beam_size=3, num_hypotheses=3, length_penalty=0.5, repetition_penalty=1.3, no_repeat_ngram_size=2
    )
    with random_subject(model) as subject:
        sentences = [Sentence(source, options, forced_ids=(7, 5)) for source in subject.sources[:20]]
        for sentence, generated in zip(sentences, subject.oracle.generate(sentences), strict=True):
            for hypothesis in generated.hypotheses:
                ended = hypothesis.is_complete
                score = subject.oracle.rescore(sentence, hypothesis.token_ids, ended=ended)
                assert score == pytest.approx(hypothesis.score, abs=1e-5)
