"""When work must end."""

import time

import pytest

from translane_server.core.budget import UNLIMITED, Budget, OverBudgetError, WorkEndedError


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
