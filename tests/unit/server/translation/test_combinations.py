"""The best combinations, against all combinations."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from translane_server.translation.translations import best_combinations

SCORES = st.lists(
    st.lists(st.integers(-20, 0), min_size=1, max_size=4).map(lambda scores: sorted(scores, reverse=True)), max_size=4
)


@given(SCORES, st.integers(1, 12))
def test_no_combination_is_better(scores, most):
    def total(numbers):
        return sum(of_sentence[number] for of_sentence, number in zip(scores, numbers, strict=True))

    found = best_combinations(scores, most)
    every = sorted(map(total, itertools.product(*(range(len(each)) for each in scores))), reverse=True)
    assert list(map(total, found)) == every[:most]
    assert len(set(found)) == len(found)


@pytest.mark.timeout(20)
def test_many_sentences_take_no_more_time_than_their_number():
    (best, second) = best_combinations([[-1.0, -1.5]] * 20_000, 2)
    assert set(best) == {0}
    assert sum(second) == 1
