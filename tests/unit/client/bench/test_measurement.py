"""Quantiles of the latency."""

from __future__ import annotations

import math

import pytest
from unit.client.bench.measured import measured

from translane_client.bench.measurement import quantile


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 50), (0.95, 95), (0.951, 96), (0.99, 99), (1.0, 100), (0.001, 1)]
)
def test_quantiles_are_values_that_occurred(share: float, expected: float):
    assert quantile(range(1, 101), share) == expected


def test_quantiles_of_few_values():
    assert quantile([7.0], 0.5) == quantile([7.0], 0.99) == 7.0
    assert math.isnan(quantile([], 0.5))
    assert measured(0.3, 0.1, 0.2).quantiles == [0.2, 0.3, 0.3, 0.3]
