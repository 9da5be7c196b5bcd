"""Plans: two of rate, goal and machines give the third."""

import pytest

from helpers.plan_profiles import MILLI, profile
from translane_plan.errors import PlanError
from translane_plan.machines import machine_of
from translane_plan.plan import make_plan
from translane_plan.profile import Length
from translane_plan.sizing import Demand, highest_rate, limits_of, outcome_at

COSTS = profile(step=MILLI, row=MILLI / 16, request=MILLI / 2, encode=MILLI / 256)
MACHINE = machine_of(COSTS, 2, front_ends=1)
DEMAND = Demand((Length(6, 8), Length(12, 16)), requests=1000)


@pytest.fixture(scope="module")
def most():
    return highest_rate(COSTS, MACHINE, DEMAND, 0.1)


def test_the_highest_rate_keeps_the_goal_and_a_higher_one_does_not(most):
    assert outcome_at(COSTS, MACHINE, DEMAND, most, 0.1).keeps(0.1)
    assert not outcome_at(COSTS, MACHINE, DEMAND, 1.1 * most, 0.1).keeps(0.1)
    assert 0 < most <= 1.02 * limits_of(COSTS, MACHINE, DEMAND).rate


def test_a_rate_and_a_goal_give_machines(most):
    plan = make_plan(COSTS, MACHINE, DEMAND, rate=3.5 * most, p95=0.1)
    assert plan.machines == 4
    assert plan.most == most
    assert plan.is_kept
    assert make_plan(COSTS, MACHINE, DEMAND, rate=0.5 * most, p95=0.1).machines == 1


def test_machines_and_a_goal_give_a_rate(most):
    plan = make_plan(COSTS, MACHINE, DEMAND, machines=3, p95=0.1)
    assert plan.rate == pytest.approx(3 * most)
    assert plan.is_kept


def test_a_rate_and_machines_give_a_latency(most):
    plan = make_plan(COSTS, MACHINE, DEMAND, rate=most, machines=2)
    assert plan.most is None
    assert plan.outcome.latencies == outcome_at(COSTS, MACHINE, DEMAND, most / 2).latencies
    assert plan.is_kept
    assert not make_plan(COSTS, MACHINE, DEMAND, rate=4 * most, machines=2).is_kept


def test_with_all_three_the_goal_is_kept_or_not(most):
    assert make_plan(COSTS, MACHINE, DEMAND, rate=most, p95=0.1, machines=2).is_kept
    assert not make_plan(COSTS, MACHINE, DEMAND, rate=3 * most, p95=0.1, machines=2).is_kept


def test_a_goal_that_no_machine_keeps_is_refused():
    with pytest.raises(PlanError, match=r"a lone request takes \d+ ms in 95% of the cases, .* keeps 5 ms"):
        make_plan(COSTS, MACHINE, DEMAND, rate=1, p95=0.005)
    with pytest.raises(PlanError, match="takes more than 1,000,000 machines"):
        make_plan(COSTS, MACHINE, DEMAND, rate=1e10, p95=0.1)


@pytest.mark.parametrize(
    ("costs", "limit"),
    [
        (profile(step=MILLI / 64, request=4 * MILLI), "front ends"),
        (profile(step=MILLI, row=MILLI, request=MILLI / 64), "replicas"),
        (profile(step=MILLI, row=MILLI / 4, request=4 * MILLI), "cores"),
    ],
)
def test_the_limit_is_the_part_without_time(costs, limit):
    cores = 2 if limit == "cores" else 4
    machine = machine_of(costs, cores, front_ends=2 if limit == "cores" else 1, replicas=2)
    assert limits_of(costs, machine, DEMAND).least == limit


def test_a_goal_may_be_the_limit_before_any_part_is_busy():
    costs = profile(step=MILLI, row=MILLI / 64)
    plan = make_plan(costs, machine_of(costs, 2, front_ends=1), DEMAND, machines=1, p95=0.02)
    assert plan.limit == "latency"
