"""Cores that processes take turns on: who gets how much, and when jobs end."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from translane_plan.profile import Turns
from translane_plan.simulation.processors import EQUAL_WEIGHTS, WEIGHTS, Niceness, Processors
from translane_plan.simulation.timeline import Timeline

FRONT, REPLICA = Niceness.FRONT, Niceness.REPLICA
TURNS = Turns(slice=0.25, tick=1.0)


def ends_of(cores, jobs, others=0.0, turns=TURNS, weights=WEIGHTS):
    """When jobs end, each of a process of its own: (begin, niceness, seconds, cores) each."""
    timeline = Timeline()
    processors = Processors(timeline, cores, turns, others, weights)
    ends: dict[int, float] = {}

    def begin(number, niceness, seconds, wanted):
        processors.process(niceness, wanted).begin(seconds, lambda: ends.update({number: timeline.now}))

    for number, (at, *job) in enumerate(jobs):
        timeline.at(at, partial(begin, number, *job))
    timeline.run(lambda: len(ends) < len(jobs))
    return [ends[number] for number in range(len(jobs))], processors


def test_jobs_with_cores_of_their_own_take_their_time():
    ends, processors = ends_of(2, [(0, FRONT, 1, 1), (0.5, REPLICA, 2, 1)])
    assert ends == [1, 2.5]
    assert processors.used == pytest.approx(3)


def test_processes_of_equal_weight_take_turns_at_ticks():
    ends, _ = ends_of(1, [(0, REPLICA, 2, 1), (0, REPLICA, 2, 1)])
    assert ends == [3, 4]


def test_a_process_that_wakes_waits_for_a_tick_if_the_deadline_of_the_other_one_is_earlier():
    jobs = [(0.1, FRONT, 2, 1), (0.3, REPLICA, 0.2, 1)]
    ends, _ = ends_of(1, jobs, weights=EQUAL_WEIGHTS)
    assert ends == pytest.approx([2.3, 1.2])


def test_a_process_that_sleeps_gives_its_core_to_one_that_waits():
    ends, _ = ends_of(1, [(0, REPLICA, 0.5, 1), (0.1, REPLICA, 1, 1)])
    assert ends == pytest.approx([0.5, 1.5])


def test_a_front_end_goes_before_a_replica_that_has_had_its_slice():
    ends, processors = ends_of(1, [(0, REPLICA, 1, 1), (0.5, FRONT, 0.25, 1)])
    assert ends == pytest.approx([1.25, 0.75])
    assert processors.used == pytest.approx(1.25)


def test_a_front_end_does_not_go_before_a_replica_that_has_not_had_its_slice():
    ends, _ = ends_of(1, [(0.5, REPLICA, 1, 1), (0.6, FRONT, 0.25, 1)])
    assert ends == pytest.approx([1.75, 1.25])  # the front end begins at the tick


def test_a_niceness_decides_about_shares():
    front, replica = WEIGHTS
    turns = Turns(slice=0.001, tick=0.001)
    ends, processors = ends_of(1, [(0, REPLICA, 1, 1), (0, FRONT, 1, 1)], turns=turns)
    assert ends == pytest.approx([2, (front + replica) / front], rel=0.02)
    assert processors.used == pytest.approx(2)


def test_other_programs_take_turns_as_front_ends_do():
    ends, _ = ends_of(1, [(0, FRONT, 100, 1)], others=1)
    assert ends == pytest.approx([200], rel=0.02)


def test_a_job_of_several_cores_takes_its_time_if_they_are_there():
    ends, processors = ends_of(4, [(0, REPLICA, 1, 4)])
    assert ends == [1]
    assert processors.used == pytest.approx(4)
    ends, processors = ends_of(2, [(0, REPLICA, 1, 4)])
    assert ends == [2]
    assert processors.used == pytest.approx(4)


def test_a_process_that_goes_on_at_once_does_not_sleep():
    timeline = Timeline()
    processors = Processors(timeline, 1, TURNS)
    process, other = processors.process(REPLICA), processors.process(REPLICA)
    ends = []
    process.begin(0.25, lambda: process.begin(0.25, lambda: ends.append(("process", timeline.now))))
    other.begin(0.25, lambda: ends.append(("other", timeline.now)))
    timeline.run(lambda: True)
    assert ends == [("process", 0.5), ("other", 0.75)]


def test_a_job_that_is_shortened_ends_once_and_earlier():
    timeline = Timeline()
    processors = Processors(timeline, 1, TURNS)
    process = processors.process(REPLICA)
    ends = []
    process.begin(8.0, lambda: ends.append(timeline.now))
    timeline.at(2.0, lambda: process.shorten(3.0))
    timeline.run(lambda: True)
    assert ends == [3]
    assert process.progress() == 3


@given(
    cores=st.integers(1, 3),
    jobs=st.lists(st.tuples(st.integers(0, 5), st.sampled_from(Niceness), st.integers(1, 5), st.just(1)), max_size=8),
)
def test_no_work_is_lost_and_nobody_is_faster_than_a_core(cores, jobs):
    ends, processors = ends_of(cores, jobs)
    assert processors.used == pytest.approx(sum(seconds for _, _, seconds, _ in jobs))
    for (at, _, seconds, _), end in zip(jobs, ends, strict=True):
        assert end >= at + seconds - 1e-9
    if ends:
        assert max(ends) <= max(at for at, *_ in jobs) + sum(seconds for _, _, seconds, _ in jobs) + 1e-9


def test_a_process_is_cold_if_a_core_has_slept_since_it_worked():
    timeline = Timeline()
    processors = Processors(timeline, 1, TURNS)
    first, second = processors.process(FRONT), processors.process(REPLICA)
    found = []

    def end_of_first():
        found.append(second.is_cold)
        second.begin(1.0, lambda: found.append(first.is_cold))  # the core has not slept since

    timeline.at(1.0, lambda: first.begin(1.0, end_of_first))
    timeline.at(9.0, lambda: found.append(first.is_cold))
    timeline.run(lambda: True)
    assert found == [True, False, True]
