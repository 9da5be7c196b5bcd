"""Whole machines: closed forms where queueing theory has them, and what holds for every load."""

import statistics
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.plan_profiles import MILLI, profile
from translane_plan.lengths import drawn
from translane_plan.profile import Length, LoopCosts
from translane_plan.simulation.load import Load, poisson, waiting_callers
from translane_plan.simulation.shape import Shape
from translane_plan.simulation.simulation import simulate

ONE_ROW = Shape(cores=8, rows=((1,),), waiting_limit=10**6)


def mean(outcome):
    return statistics.fmean(outcome.latencies)


@pytest.mark.parametrize("load", [0.3, 0.7])
@pytest.mark.parametrize("targets", [(8,), (1, 2, 4, 8, 16)], ids=["equal", "many"])
def test_a_replica_of_one_row_is_the_queue_m_g_1(load, targets):
    """Pollaczek and Khinchine: the mean wait is rate * E[S²] / (2 (1 - load)), for service times S."""
    lengths = tuple(Length(4, target) for target in targets)
    service = [target * MILLI for target in targets]
    rate = load / statistics.fmean(service)
    outcome = simulate(profile(), ONE_ROW, poisson(rate, 10_000, lengths))
    sojourn = statistics.fmean(service) + rate * statistics.fmean(s * s for s in service) / (2 * (1 - load))
    assert mean(outcome) == pytest.approx(sojourn, rel=0.1)
    assert outcome.replicas == pytest.approx(load, rel=0.03)


def test_the_requests_that_are_open_follow_littles_law():
    lengths = (Length(3, 4), Length(20, 30))
    outcome = simulate(
        profile(row=MILLI / 8, encode=MILLI / 64, request=MILLI, turn=MILLI / 8),
        Shape(cores=2, rows=((8,), (8,))),
        poisson(150, 8000, lengths),
    )
    assert not outcome.grows
    assert outcome.open_requests == pytest.approx(outcome.rate * mean(outcome), rel=0.02)


def test_a_lone_request_takes_the_sum_of_its_parts():
    costs = profile(
        step=MILLI, encode=MILLI / 4, turn=MILLI / 2, sentence=MILLI, wake=3 * MILLI, delay=5 * MILLI,
        request=4 * MILLI, front_wake=MILLI, caller=LoopCosts(request=2 * MILLI, wake=MILLI / 2),
    )  # fmt: skip
    load = Load(drawn([Length(8, 10)], 0), 1, [1.0], warm_up=0.0)
    expected = 4 * MILLI + 2 * MILLI  # front end, and its wakes
    expected += 3 * MILLI + MILLI / 2 + MILLI + 8 * MILLI / 4 + 10 * MILLI  # replica
    assert simulate(costs, Shape(8, ((4,),)), load).latencies == pytest.approx([expected + 3 * 5 * MILLI])
    load = replace(load, lengths=drawn([Length(8, 10)], 0))
    expected += 2 * MILLI + 2 * MILLI / 2  # caller, and its wakes
    shape = Shape(8, ((4,),), caller_processes=1, caller_cores=1)
    # The caller wakes before it sends.
    assert simulate(costs, shape, load).latencies == pytest.approx([expected + 4 * 5 * MILLI])


def test_a_request_of_several_sentences_ends_with_the_last_one():
    load = Load(iter([Length(1, 5), Length(1, 40), Length(1, 9)]), 1, [0.0], sentences=3, warm_up=0.0)
    assert simulate(profile(), Shape(8, ((4,),)), load).latencies == pytest.approx([40 * MILLI])


def test_callers_who_wait_get_what_the_slowest_part_can_do():
    shape = Shape(cores=8, rows=((1,), (1,)))
    outcome = simulate(profile(request=MILLI), shape, waiting_callers(64, 4000, [Length(1, 4)]))
    assert outcome.rate == pytest.approx(2 / (4 * MILLI), rel=0.02)
    assert outcome.open_requests == pytest.approx(64, rel=0.01)


def test_the_same_seed_gives_the_same_outcome():
    lengths = (Length(3, 4), Length(20, 30))

    def outcome(seed):
        load = poisson(100, 500, lengths, seed=seed)
        return simulate(profile(request=MILLI), Shape(4, ((4,), (4,))), load, seed)

    assert outcome(1) == outcome(1)
    assert outcome(1) != outcome(2)


def test_more_requests_wait_longer():
    lengths = (Length(3, 4), Length(20, 30))
    costs = profile(row=MILLI / 4, request=MILLI)
    waits = [mean(simulate(costs, Shape(2, ((8,),)), poisson(rate, 3000, lengths))) for rate in (20, 60, 120, 180)]
    assert waits == sorted(waits)
    assert waits[-1] > waits[0]


def test_too_much_is_refused_or_grows():
    costs, shape = profile(), Shape(8, ((1,),), waiting_limit=50)
    outcome = simulate(costs, shape, poisson(2 / (8 * MILLI), 2000, [Length(4, 8)]))
    assert outcome.refused > 500
    assert not outcome.keeps(1e9)
    outcome = simulate(costs, replace(shape, waiting_limit=10**6), poisson(1.2 / (8 * MILLI), 4000, [Length(4, 8)]))
    assert outcome.refused == 0
    assert outcome.grows
    assert not outcome.keeps(1e9)


@settings(max_examples=40)
@given(
    cores=st.integers(1, 4),
    rows=st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=3), min_size=1, max_size=3),
    rate=st.integers(1, 2000),
    sentences=st.integers(1, 3),
    limit=st.sampled_from([5, 10**6]),
    lengths=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=5),
    others=st.sampled_from([0.0, 1.5]),
)
def test_every_request_is_answered_or_refused_once(cores, rows, rate, sentences, limit, lengths, others):
    costs = profile(row=MILLI / 8, encode=MILLI / 64, key=1e-6, turn=1e-4, request=MILLI / 2, wake=1e-4, delay=1e-4)
    load = replace(poisson(rate, 60, [Length(*each) for each in lengths], sentences=sentences), warm_up=0.0)
    outcome = simulate(costs, Shape(cores, rows, waiting_limit=limit, others=others), load)
    assert len(outcome.latencies) + outcome.refused == 60
    if limit > 60 * sentences:
        assert outcome.refused == 0
    least = min(target for _, target in lengths) * MILLI + MILLI / 2
    assert all(latency >= least for latency in outcome.latencies)
    for share in (outcome.front_ends, outcome.replicas, outcome.cores):
        assert 0 <= share <= 1 + 1e-9
    assert outcome.rows <= max(map(max, rows))
