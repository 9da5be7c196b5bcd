import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from translane_server.engine.beam import HypothesisPool, best_continuations
from translane_server.engine.options import DecodingOptions

EOS = 3


def pool(beam_size=2, **options):
    return HypothesisPool(DecodingOptions(max_length=9, beam_size=beam_size, **options))


def by_definition(rows, totals, token_ids, scores, log_probs, beam_size, all_end):
    """All candidates sorted: of the 2 * beam_size best, who ends among the first beam_size, and who goes on."""
    candidates = [
        (beam, int(token_ids[row, column]), totals[beam] + float(scores[row, column]), float(log_probs[row, column]))
        for beam, row in enumerate(rows)
        for column in range(token_ids.shape[1])
    ]
    best = sorted(candidates, key=lambda candidate: -candidate[2])[: 2 * beam_size]
    best = [candidate for candidate in best if candidate[2] > -np.inf]
    ends = [candidate[1] == EOS or all_end for candidate in best]
    going = [candidate for candidate, end in zip(best, ends, strict=True) if not end][:beam_size]
    ending = [candidate for candidate, end in list(zip(best, ends, strict=True))[:beam_size] if end]
    return going, ending


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 8), st.booleans())
@settings(max_examples=500)
def test_the_best_continuations_are_those_of_all_candidates_sorted(seed, beam_size, width, all_end):
    generator = np.random.default_rng(seed)
    beams = int(generator.integers(1, beam_size + 1))
    rows = generator.permutation(8)[:beams].tolist()
    totals = sorted((-generator.integers(0, 8, beams) / 2).tolist(), reverse=True)  # halves: many are equal
    token_ids = np.stack([generator.permutation(10)[:width] for _ in range(8)])
    scores = -np.sort(generator.integers(0, 8, (8, width)).astype(np.float32) / np.float32(2), axis=1)
    scores[generator.random((8, width)).cumsum(axis=1) > generator.uniform(0, width)] = -np.inf
    log_probs = -generator.random((8, width), np.float32)
    expected = by_definition(rows, totals, token_ids, scores, log_probs, beam_size, all_end)
    found = best_continuations(
        rows, totals, token_ids, scores, log_probs, beam_size=beam_size, eos=EOS, all_end=all_end
    )
    assert found == expected


@given(st.lists(st.floats(-50, 0), max_size=12), st.integers(1, 5))
def test_the_pool_keeps_the_best(scores, size):
    kept = pool(beam_size=size)
    for number, score in enumerate(scores):
        if kept.accepts(score):
            kept.add(score, number)
    order = sorted(range(len(scores)), key=lambda number: (-scores[number], number))
    assert kept.hypotheses == order[:size]
    assert kept.is_full == (len(scores) >= size)


def test_patience_multiplies_the_pool():
    assert pool(beam_size=4, patience=2.0).capacity == 8
    assert pool(beam_size=4, patience=0.5).capacity == 2
    assert pool(beam_size=2, patience=0.1).capacity == 1


def test_the_search_goes_on_while_the_best_live_hypothesis_could_get_in():
    kept = pool()
    kept.add(-1.0, "a")
    assert not kept.is_final(-100.0, 2), "there is room"
    kept.add(-2.0, "b")
    assert not kept.is_final(-3.9, 2)
    assert kept.is_final(-4.0, 2), "it would only be as good as the worst one"


def test_early_stopping_ends_the_search_once_the_pool_is_full():
    kept = pool(early_stopping=True)
    kept.add(-1.0, "a")
    assert not kept.is_final(-0.1, 2)
    kept.add(-2.0, "b")
    assert kept.is_final(-0.1, 2)


@pytest.mark.parametrize(("length_penalty", "score"), [(0.0, -6.0), (1.0, -2.0), (2.0, -6 / 9), (-1.0, -18.0)])
def test_the_length_penalty_is_an_exponent(length_penalty, score):
    assert pool(length_penalty=length_penalty).normalise(-6.0, 3) == pytest.approx(score)


@pytest.mark.parametrize("length_penalty", [3e38, -3e38])
def test_any_length_penalty_gives_a_number(length_penalty):
    assert np.isfinite(pool(length_penalty=length_penalty).normalise(-6.0, 500))
