"""Cores that jobs share: who gets how much, and when jobs end."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from translane_plan.simulation.processors import WEIGHTS, Niceness, Processors
from translane_plan.simulation.timeline import Timeline

FRONT, REPLICA = Niceness.FRONT, Niceness.REPLICA


def ends_of(cores, jobs, others=0.0):
    """When jobs end: (begin, niceness, seconds, cores) each."""
    timeline = Timeline()
    processors = Processors(timeline, cores, others)
    ends: dict[int, float] = {}

    def begin(number, niceness, seconds, wanted):
        processors.begin(niceness, seconds, wanted, lambda: ends.update({number: timeline.now}))

    for number, (at, *job) in enumerate(jobs):
        timeline.at(at, partial(begin, number, *job))
    timeline.run(lambda: True)
    return [ends[number] for number in range(len(jobs))], processors


def test_jobs_with_cores_of_their_own_take_their_time():
    ends, processors = ends_of(2, [(0, FRONT, 1, 1), (0.5, REPLICA, 2, 1)])
    assert ends == [1, 2.5]
    assert processors.used == pytest.approx(3)


def test_jobs_of_equal_niceness_share_a_core():
    ends, _ = ends_of(1, [(0, REPLICA, 1, 1), (0, REPLICA, 1, 1)])
    assert ends == pytest.approx([2, 2])
    ends, _ = ends_of(1, [(0, REPLICA, 1, 1), (0.5, REPLICA, 1, 1)])
    assert ends == pytest.approx([1.5, 2])


def test_a_front_end_goes_before_a_replica():
    front, replica = WEIGHTS
    ends, processors = ends_of(1, [(0, REPLICA, 1, 1), (0, FRONT, 1, 1)])
    assert ends == pytest.approx([2, (front + replica) / front])
    assert processors.used == pytest.approx(2)


def test_front_ends_with_enough_cores_leave_the_rest_to_replicas():
    ends, _ = ends_of(2, [(0, FRONT, 4, 1), (0, REPLICA, 1, 1), (0, REPLICA, 1, 1)])
    assert ends == pytest.approx([4, 2, 2])


def test_other_programs_share_as_front_ends_do():
    ends, _ = ends_of(1, [(0, FRONT, 1, 1)], others=1)
    assert ends == pytest.approx([2])


def test_a_job_of_several_cores_takes_its_time_if_they_are_there():
    ends, processors = ends_of(4, [(0, REPLICA, 1, 4)])
    assert ends == [1]
    assert processors.used == pytest.approx(4)


def test_a_job_that_is_shortened_ends_once_and_earlier():
    timeline = Timeline()
    processors = Processors(timeline, 1)
    ends = []
    job = processors.begin(REPLICA, 8.0, 1, lambda: ends.append(timeline.now))
    timeline.at(2.0, lambda: processors.shorten(job, 3.0))
    timeline.run(lambda: True)
    assert ends == [3]
    assert processors.progress(job) == 3


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
