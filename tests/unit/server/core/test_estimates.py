"""Estimates from numbers alone: quality, suspect pairs, and when work must end."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from translane_server.core.budget import UNLIMITED, Budget, OverBudgetError, WorkEndedError
from translane_server.core.quality_estimate import UNCALIBRATED, Calibration, combined_quality, estimated_quality
from translane_server.core.suspect_pairs import COPY, EMPTY, RATIO, suspicion

# Rounding gives a certain token slightly more than 0, and a banned token has no probability at all.
LOG_PROBS = st.lists(st.floats(max_value=1e-6) | st.just(-math.inf), max_size=40)
CALIBRATIONS = st.builds(Calibration, st.floats(min_value=1e-6, max_value=10), st.floats(-100, 100))


@given(LOG_PROBS, CALIBRATIONS)
def test_an_estimate_is_between_0_and_1(log_probs, calibration):
    assert 0 <= estimated_quality(log_probs, calibration) <= 1


@given(LOG_PROBS.filter(len), CALIBRATIONS, st.data())
def test_a_more_probable_token_never_lowers_the_estimate(log_probs, calibration, data):
    place = data.draw(st.integers(0, len(log_probs) - 1))
    higher = data.draw(st.floats(min_value=max(log_probs[place], -1000), max_value=1e-6))
    raised = [*log_probs[:place], higher, *log_probs[place + 1 :]]
    assert estimated_quality(raised, calibration) >= estimated_quality(log_probs, calibration) - 1e-12


def test_without_calibration_it_is_the_mean_probability():
    assert estimated_quality([math.log(0.9), math.log(0.4), math.log(0.2)]) == pytest.approx(0.5)
    assert estimated_quality([0.0]) == pytest.approx(0.999)
    assert estimated_quality([-math.inf]) == pytest.approx(0.001)


def test_a_calibration_moves_log_odds():
    estimate = estimated_quality([math.log(0.8)], Calibration(2, -1))
    assert math.log(estimate / (1 - estimate)) == pytest.approx(2 * math.log(4) - 1)


def test_where_nothing_is_generated_nothing_can_be_wrong():
    assert estimated_quality([], Calibration(3, -50)) == 1
    assert combined_quality([]) == 1


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 1000)), min_size=1))
def test_a_text_is_between_its_sentences(parts):
    qualities = [quality for quality, _ in parts]
    assert min(qualities) - 1e-9 <= combined_quality(parts) <= max(qualities) + 1e-9


def test_long_sentences_count_more():
    assert combined_quality([(0.9, 30), (0.3, 10)]) == pytest.approx(0.75)
    assert combined_quality([(estimated_quality([-0.5], UNCALIBRATED), 7)]) == pytest.approx(math.exp(-0.5))


# Rules for pairs that look like mistakes.


@pytest.mark.parametrize(
    ("source", "translation", "pieces", "max_ratio", "expected"),
    [
        ("一", "one", (2, 2), 1.0, ""),
        ("一", "", (2, 1), math.inf, EMPTY),
        ("a", "a", (2, 2), math.inf, COPY),
        ("一", "one two", (2, 4), 2.0, ""),
        ("一", "one two", (2, 5), 2.0, RATIO),
        ("一二", "one", (5, 2), 2.0, RATIO),
        ("一", "one", (2, 0), math.inf, ""),
    ],
)
def test_the_first_rule_that_fits_is_told(source, translation, pieces, max_ratio, expected):
    of_source, of_translation = pieces
    assert suspicion(source, translation, of_source, of_translation, max_ratio) == expected


# When work must end.


def test_work_may_go_on_for_its_seconds_from_its_start():
    now = 5.0
    budget = Budget(2.0, clock=lambda: now)
    now = 100.0
    budget.start()
    now = 102.0
    budget.check()
    now = 102.1
    with pytest.raises(OverBudgetError):
        budget.check()


def test_time_in_which_the_thread_waits_does_not_count():
    budget = Budget(0.2)
    budget.start()
    time.sleep(0.3)
    budget.check()


def test_work_that_is_ended_ends_at_its_next_check():
    budget = Budget()
    budget.start()
    budget.check()
    budget.end()
    with pytest.raises(WorkEndedError):
        budget.check()


def test_little_work_is_never_ended():
    UNLIMITED.check()
