"""The search for the highest rate that keeps a bound."""

from __future__ import annotations

import math

import pytest

from translane_client.bench.benchmark import RateSearch


@pytest.mark.parametrize("capacity", [0.7, 3.0, 97.3, 100.0, 1234.5])
@pytest.mark.parametrize("start", [1.0, 90.0, 5000.0])
def test_the_search_finds_the_highest_rate_that_is_kept(capacity: float, start: float):
    search, tried = RateSearch(start, trials=60), []
    while (rate := search.next_rate()) is not None:
        tried.append(rate)
        search.tell(rate, is_kept=rate <= capacity)
    assert tried[0] == start
    assert search.kept is not None
    assert capacity / 1.04 <= search.kept <= capacity
    assert all(tried.count(rate) == (1 if rate <= capacity else 2) for rate in tried)
    assert len(set(tried)) < 30


def test_a_rate_that_fails_once_is_tried_again():
    search = RateSearch(100.0, trials=9)
    outcomes = iter([False, True, False, False, True])
    tried = []
    for is_kept in outcomes:
        rate = search.next_rate()
        assert rate is not None
        tried.append(rate)
        search.tell(rate, is_kept=is_kept)
    assert tried == pytest.approx([100.0, 100.0, 150.0, 150.0, math.sqrt(100.0 * 150.0)])
    assert (search.kept, search.failed) == (tried[-1], 150.0)


def test_the_search_ends_after_its_trials():
    search = RateSearch(100.0, trials=5)
    tried = 0
    while (rate := search.next_rate()) is not None:
        tried += 1
        search.tell(rate, is_kept=False)
    assert (tried, search.kept) == (5, None)
    assert search.failed == pytest.approx(100.0 / 1.5**2)
