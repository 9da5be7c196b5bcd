"""The learning rate; `test_parallel.py` and `test_run.py` ask of updates."""

import pytest

from translane_export.train.update import WarmupInverseSqrt


@pytest.mark.parametrize(
    ("warmup", "total", "cooldown", "rates"),
    [
        (100, 0, 0, {1: 0.01, 50: 0.5, 100: 1.0, 400: 0.5}),
        (0, 0, 0, {1: 1.0, 4: 0.5}),  # without warm-up the first step has the peak
        (9, 100, 19, {1: 1 / 9, 36: 0.5, 81: 1 / 3, 91: (9 / 91) ** 0.5 / 2, 100: 0.3 / 20, 101: 0}),
    ],
)
def test_rates(warmup: int, total: int, cooldown: int, rates: dict[int, float]) -> None:
    """A cool-down ends at almost nothing, and changes nothing before."""
    schedule = WarmupInverseSqrt(1.0, warmup, total, cooldown)
    assert {step: schedule.rate(step) for step in rates} == pytest.approx(rates)
