import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from translane_server.decoding.beam import HypothesisPool, best_continuations
from translane_server.options import DecodingOptions


def pool(beam_size=2, **options):
    return HypothesisPool(DecodingOptions(max_length=9, beam_size=beam_size, **options))


def test_the_best_continuations_of_each_sentence_best_first():
    totals = np.array([[-1.5, -4.0, -2.1, -2.2], [-2.0, -2.5, -6.0, -14.0]])
    assert best_continuations(totals, 3).tolist() == [[0, 2, 3], [0, 1, 2]]


def test_of_equal_continuations_the_first_is_the_better_one():
    assert best_continuations(np.array([[-2.0, -1.0, -1.0, -1.0]]), 3).tolist() == [[1, 2, 3]]


def test_what_is_not_there_comes_last():
    assert best_continuations(np.array([[-np.inf, -9.0, -np.inf, -1.0]]), 4).tolist() == [[3, 1, 0, 2]]


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
