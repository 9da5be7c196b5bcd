"""The order and the rates of a serving benchmark."""

import pytest

from benchmarks.measuring.serving_cell import engines_in_turn, rates_between


def test_the_engines_take_turns():
    assert engines_in_turn(3) == ["translane", "ctranslate2", "ctranslate2", "translane", "translane", "ctranslate2"]


def test_the_grid_goes_up_to_nearly_what_the_faster_engine_can_take():
    assert rates_between(100.0, 400.0, 2) == pytest.approx([90.0, 360.0])
    rates = rates_between(100.0, 400.0, 4)
    assert (rates[0], rates[-1]) == pytest.approx((50.0, 360.0))
    assert rates == sorted(rates)
    assert rates_between(1.0, 1.0, 4) == []
