import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from translane_server.engine.search import LEAST_COVERAGE, aligned_tokens, coverage_penalty
from translane_server.engine.sequence import AlignedToken


@given(st.lists(st.lists(st.integers(0, 8), min_size=5, max_size=5), max_size=6), st.integers(1, 5))
def test_a_token_comes_from_where_it_attends_most_before_the_end_of_the_sentence(rows, source_length):
    """Of equal weights, which eighths often are, the first one counts."""
    attention = np.array(rows, np.float32).reshape(-1, 5) / np.float32(8)
    considered = [row[: max(1, source_length - 1)] for row in attention.tolist()]
    aligned = aligned_tokens(attention, source_length)
    assert aligned == tuple(AlignedToken(row.index(max(row)), max(row)) for row in considered)
    assert all(type(token.source_token) is int and type(token.weight) is float for token in aligned)


@pytest.mark.parametrize(
    ("attention", "source_length", "expected"),
    [
        ([1.0, 1.5, 3.0], 3, 0.0),
        ([0.5, 2.0, 0.25], 3, math.log(0.5) + math.log(0.25)),
        ([0.0, 1.0], 2, math.log(LEAST_COVERAGE)),
        ([1.0, 1.0, 0.0, 0.0], 2, 0.0),
    ],
    ids=["covered", "in part", "not at all, and finite", "but for the padding"],
)
def test_what_is_not_covered_costs_the_logarithm(attention, source_length, expected):
    assert coverage_penalty(np.array(attention, np.float32), source_length) == pytest.approx(expected)
