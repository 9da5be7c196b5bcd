"""A process that takes one message after the other."""

import itertools
import statistics
from functools import partial

import pytest

from translane_client.bench.schedule import arrivals
from translane_plan.profile import LoopCosts, Turns
from translane_plan.simulation.event_loop import EventLoop
from translane_plan.simulation.processors import Processors
from translane_plan.simulation.timeline import Timeline

FREE = LoopCosts(request=0.0)


def handled(messages, costs=FREE, delay=0.0, cores=4):
    """When each message is handled: (time, work) each; and the loop."""
    timeline = Timeline()
    loop = EventLoop(timeline, Processors(timeline, cores, Turns()), costs, delay)
    ends: list[float] = []
    for at, work in messages:
        timeline.at(at, partial(loop.handle, work, lambda: ends.append(timeline.now)))
    timeline.run(lambda: True)
    return ends, loop


def test_messages_wait_for_each_other():
    ends, loop = handled([(0, 2.0), (1, 1.0), (5, 1.0)])
    assert ends == [2, 3, 6]
    assert loop.busy == 4


def test_only_a_message_that_finds_the_process_asleep_wakes_it():
    ends, loop = handled([(0, 2.0), (1, 1.0), (9, 1.0)], LoopCosts(request=0.0, wake=0.5), delay=0.25)
    assert ends == [2.75, 3.75, 10.75]
    assert loop.busy == 5


def test_other_threads_work_at_the_same_time():
    ends, loop = handled([(0, 2.0)], LoopCosts(request=0.0, threads=0.25))
    assert ends == [1.5]
    assert loop.busy == 1.5
    ends, _ = handled([(0, 2.0)], LoopCosts(request=0.0, threads=0.25), cores=1)
    assert ends == pytest.approx([2.0])


def test_work_after_a_message_delays_only_the_next_one():
    ends, loop = handled([(0, 4.0), (1, 4.0), (20, 4.0)], LoopCosts(request=0.0, after=0.25))
    assert ends == [3, 7, 23]
    assert loop.busy == 12


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_equal_messages_are_the_queue_m_d_1(load):
    """Pollaczek and Khinchine: the mean wait is load / (2 (1 - load)) of the work on a message."""
    messages = [(at, 1.0) for at in itertools.islice(arrivals(load, 0), 15_000)]
    ends, loop = handled(messages)
    waits = [end - at - 1 for end, (at, _) in zip(ends, messages, strict=True)]
    assert statistics.fmean(waits) == pytest.approx(load / (2 * (1 - load)), rel=0.1)
    assert loop.busy == 15_000
