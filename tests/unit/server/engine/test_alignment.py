import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from translane_server.engine.hypotheses import LEAST_COVERAGE, aligned_tokens, coverage_penalty
from translane_server.engine.sequence import AlignedToken


def test_a_token_comes_from_where_it_attends_most():
    attention = np.array([[0.25, 0.5, 0.25], [0.75, 0.0, 0.25]], np.float32)
    assert aligned_tokens(attention, 3) == (AlignedToken(1, 0.5), AlignedToken(0, 0.75))


def test_the_end_of_the_sentence_and_what_is_behind_it_are_passed_over():
    attention = np.array([[0.125, 0.25, 0.5, 0.125]], np.float32)
    assert aligned_tokens(attention, 3) == (AlignedToken(1, 0.25),)


def test_a_source_without_other_tokens_aligns_to_its_end():
    assert aligned_tokens(np.array([[1.0, 0.0]], np.float32), 1) == (AlignedToken(0, 1.0),)


def test_of_equal_weights_the_first_counts():
    assert aligned_tokens(np.full((1, 4), 0.25, np.float32), 4) == (AlignedToken(0, 0.25),)


def test_no_tokens_have_no_alignment():
    assert aligned_tokens(np.zeros((0, 3), np.float32), 3) == ()


def test_alignments_are_plain_numbers():
    (token,) = aligned_tokens(np.array([[0.5, 0.5]], np.float32), 2)
    assert type(token.source_token) is int
    assert type(token.weight) is float


@given(st.lists(st.lists(st.floats(0, 1, width=32), min_size=5, max_size=5), max_size=6), st.integers(1, 5))
def test_the_weight_is_the_highest_of_the_row(rows, source_length):
    attention = np.array(rows, np.float32).reshape(-1, 5)
    considered = attention[:, : max(1, source_length - 1)]
    aligned = aligned_tokens(attention, source_length)
    assert [token.weight for token in aligned] == considered.max(axis=1, initial=0).tolist()
    assert [attention[i, token.source_token] for i, token in enumerate(aligned)] == [t.weight for t in aligned]


def test_what_is_covered_costs_nothing_however_often():
    assert coverage_penalty(np.array([1.0, 1.5, 3.0], np.float32), 3) == 0.0


def test_what_is_covered_in_part_costs_the_logarithm():
    assert coverage_penalty(np.array([0.5, 2.0, 0.25], np.float32), 3) == pytest.approx(math.log(0.5) + math.log(0.25))


def test_what_is_not_covered_costs_much_and_not_without_end():
    assert coverage_penalty(np.array([0.0, 1.0], np.float32), 2) == pytest.approx(math.log(LEAST_COVERAGE))
    assert coverage_penalty(np.array([0.0, 1.0]), 2) < coverage_penalty(np.array([1e-6, 1.0]), 2)


def test_padding_is_no_part_of_the_source():
    assert coverage_penalty(np.array([1.0, 1.0, 0.0, 0.0], np.float32), 2) == 0.0
