import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import reference_decoding
from translane_server.engine.options import DecodingOptions
from translane_server.engine.processors import Rules, process, whole_row
from translane_server.engine.sequence import TargetVocabulary

V = 30
EOS = 1
VOCABULARY = TargetVocabulary(0, EOS, [b""] * V)


@st.composite
def rows(draw):
    """Logits, options and history of a few rows."""
    count = draw(st.integers(1, 5))
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    logits = (generator.normal(size=(count, V)) * 3).astype(np.float32)
    options = [
        DecodingOptions(
            max_length=20,
            min_length=draw(st.sampled_from([0, 20])),
            repetition_penalty=draw(st.sampled_from([1.0, 1.3, 3.0, 0.6])),
            no_repeat_ngram_size=draw(st.integers(0, 3)),
            suppressed_ids=draw(st.sampled_from([(), (3,), tuple(range(20))])),
            beam_size=draw(st.sampled_from([1, 2])),
        )
        for _ in range(count)
    ]
    histories = [[0, *draw(st.lists(st.integers(2, V - 1), max_size=12))] for _ in range(count)]
    return logits, options, histories


def make_rules(options, histories):
    masks = {}
    for row, option in enumerate(options):
        if option.suppressed_ids:
            half = len(option.suppressed_ids) // 2
            masks[row] = [
                np.isin(np.arange(V), ids) for ids in (option.suppressed_ids[:half], option.suppressed_ids[half:])
            ]
    history = np.full((len(options), max(map(len, histories)) + 3), -7)
    for row, tokens in enumerate(histories):
        history[row, : len(tokens)] = tokens
    return Rules(
        history=history,
        lengths=np.array([len(tokens) for tokens in histories], np.int32),
        on_logits=np.array([option.beam_size == 1 for option in options]),
        eos_banned=np.array([option.min_length > 0 for option in options]),
        repetition_penalty=np.array([option.repetition_penalty for option in options], np.float32),
        ngram_size=np.array([option.no_repeat_ngram_size for option in options], np.int32),
        eos=EOS,
        masks=masks,
    )


def expected(logits, option, history):
    scores = logits.astype(np.float64) if option.beam_size == 1 else reference_decoding.log_softmax(logits)
    return reference_decoding.process(scores, history, len(history) - 1, option, VOCABULARY)


def normalisers_of(logits):
    return np.array([row[0] - reference_decoding.log_softmax(row)[0] for row in logits], np.float32)


@given(rows(), st.sampled_from([1, 2, 4, 8]), st.integers(0, 12))
@settings(max_examples=400, deadline=None)
def test_the_best_tokens_are_those_of_the_whole_vocabulary_however_many_candidates_there_are(case, needed, spare):
    logits, options, histories = case
    width = min(needed + spare, V)
    ids = np.argsort(-logits, axis=1, kind="stable")[:, :width]
    count = np.full(len(options), needed, np.int32)
    rules, normalisers = make_rules(options, histories), normalisers_of(logits)
    processed = process(rules, ids, logits, normalisers, count)
    for row, (option, history) in enumerate(zip(options, histories, strict=True)):
        scores = expected(logits[row], option, history)
        best = np.argsort(-scores, kind="stable")[:needed]
        best = best[scores[best] > -np.inf]
        assert processed.token_ids[row, : len(best)].tolist() == best.tolist()
        assert processed.scores[row, : len(best)] == pytest.approx(scores[best], abs=1e-4)
        assert (processed.scores[row, len(best) : needed] == -np.inf).all()
        assert whole_row(rules, row, logits[row], normalisers[row]) == pytest.approx(scores, abs=1e-4)
        own = reference_decoding.log_softmax(logits[row])
        assert processed.log_probs[row, : len(best)] == pytest.approx(own[best], abs=1e-4)


@given(rows(), st.integers(1, 4), st.booleans())
@settings(max_examples=300, deadline=None)
def test_numbers_are_bit_identical_and_ties_in_order_however_many_candidates_there_are(case, needed, rounded):
    logits, options, histories = case
    if rounded:
        logits = np.round(logits * 2) / 2  # with many ties
    order = np.argsort(-logits, axis=1, kind="stable")
    count = np.full(len(options), needed, np.int32)
    rules, normalisers = make_rules(options, histories), normalisers_of(logits)
    widths = (needed, needed + 1, needed + 7, V)
    first, *others = (process(rules, order[:, :width], logits, normalisers, count) for width in widths)
    finite = first.scores[:, :needed] > -np.inf
    for outcome in others:
        assert (outcome.scores[:, :needed] == first.scores[:, :needed]).all()
        assert (outcome.token_ids[:, :needed][finite] == first.token_ids[:, :needed][finite]).all()
        assert (outcome.log_probs[:, :needed][finite] == first.log_probs[:, :needed][finite]).all()
