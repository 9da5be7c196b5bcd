import pytest

from translane_export.train.schedule import WarmupInverseSqrt


def test_the_rate_rises_linearly_and_falls_with_the_inverse_square_root() -> None:
    schedule = WarmupInverseSqrt(peak=2e-3, warmup_steps=100)
    assert schedule.rate(1) == pytest.approx(2e-5)
    assert schedule.rate(50) == pytest.approx(1e-3)
    assert schedule.rate(100) == pytest.approx(2e-3)
    assert schedule.rate(400) == pytest.approx(1e-3)


def test_without_warm_up_the_first_step_has_the_peak() -> None:
    schedule = WarmupInverseSqrt(peak=1.0, warmup_steps=0)
    assert [schedule.rate(1), schedule.rate(4)] == [1.0, 0.5]


def test_a_cool_down_ends_the_run_at_almost_nothing_and_changes_nothing_before() -> None:
    plain = WarmupInverseSqrt(peak=1.0, warmup_steps=10)
    cooled = WarmupInverseSqrt(peak=1.0, warmup_steps=10, total_steps=100, cooldown_steps=19)
    assert [cooled.rate(step) for step in range(1, 82)] == [plain.rate(step) for step in range(1, 82)]
    assert cooled.rate(91) == pytest.approx(plain.rate(91) / 2)
    assert cooled.rate(100) == pytest.approx(plain.rate(100) / 20)
    assert cooled.rate(101) == 0
