"""Correlations and fits of estimates."""

import numpy as np
import pytest

from benchmarks.measuring.quality import area, bins, kendall, logistic, pearson, spearman

ONE, OTHER = np.array([1.0, 2, 3, 4, 5]), np.array([2.0, 1, 4, 3, 5])


def test_correlations_by_hand():
    assert pearson(ONE, OTHER) == pytest.approx(0.8)
    assert spearman(ONE, OTHER**3) == pytest.approx(0.8)  # order alone counts
    assert kendall(ONE, OTHER) == pytest.approx((8 - 2) / 10)


def test_ties_share_their_rank():
    tied = np.array([1.0, 1, 2, 2])
    assert spearman(tied, np.array([1.0, 2, 3, 4])) == pytest.approx(4 / np.sqrt(20))
    assert kendall(tied, tied) == pytest.approx(1)


@pytest.mark.parametrize("measure", [pearson, spearman, kendall])
def test_a_constant_correlates_with_nothing(measure):
    assert measure(np.ones(4), np.arange(4.0)) == 0


def test_the_area_counts_pairs():
    estimates, weak = np.array([0.1, 0.6, 0.5, 0.9]), np.array([True, True, False, False])
    assert area(estimates, weak) == pytest.approx(3 / 4)
    assert area(np.ones(4), weak) == pytest.approx(1 / 2)


def test_a_logistic_function_is_found():
    inputs = np.random.default_rng(0).normal(size=(3000, 2))
    chrf = 1 / (1 + np.exp(-(inputs @ [1.0, -2.0] + 0.5)))
    np.testing.assert_allclose(logistic(inputs, chrf)(inputs), chrf, atol=0.01)


def test_bins_are_in_the_order_of_estimates():
    estimates = np.linspace(0, 1, 100)[::-1].copy()
    found = bins(estimates, estimates**2)
    assert found.shape == (10, 4)
    assert (np.diff(found, axis=0) > 0).all()
    assert found[:, 0].mean() == pytest.approx(estimates.mean())
