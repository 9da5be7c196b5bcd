"""A plan: machines, what runs on each, and what is expected of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from translane_plan.errors import PlanError
from translane_plan.machines import Machine
from translane_plan.profile import Profile
from translane_plan.simulation.outcome import Outcome
from translane_plan.sizing import Demand, Limits, highest_rate, limits_of, lone_outcome, outcome_at

_MOST_MACHINES = 1_000_000
_NEAR = 0.8  # of the rate of a part without time left: chance makes requests wait before
_LATE = "a lone request takes {lone:.0f} ms in 95% of the cases, so no number of machines keeps {goal:.0f} ms"


@dataclass(frozen=True)
class Plan:
    """Machines for a load.

    Attributes:
        profile: what sentences cost.
        machine: each of the machines.
        machines: number of machines.
        rate: sentences a second, of all machines together.
        p95: the goal [seconds]; None without one.
        most: the highest rate of a machine that keeps the goal [sentences a second]; None if it was not asked for.
        outcome: what each machine is expected to do.
        limits: what each part of a machine could do alone.
        sentences: sentences of a request.
    """

    profile: Profile
    machine: Machine
    machines: int
    rate: float
    p95: float | None
    most: float | None
    outcome: Outcome
    limits: Limits
    sentences: int

    @property
    def is_kept(self) -> bool:
        """Whether the machines answer all requests, and within the goal if there is one."""
        return not self.is_too_much and self.outcome.keeps(math.inf if self.p95 is None else self.p95)

    @property
    def is_too_much(self) -> bool:
        """Whether a machine gets more than a part of it could ever do, so that requests wait longer and longer."""
        return self.outcome.grows or self.share > self.limits.rate

    @property
    def limit(self) -> str:
        """The part that ends the growth of the rate: a part without time left, or the goal if all have some."""
        if self.most is not None and self.most < _NEAR * self.limits.rate:
            return "latency"
        return self.limits.least

    @property
    def share(self) -> float:
        """The rate of a machine [sentences a second]."""
        return self.rate / self.machines


def make_plan(
    profile: Profile,
    machine: Machine,
    demand: Demand,
    *,
    rate: float | None = None,
    p95: float | None = None,
    machines: int | None = None,
) -> Plan:
    """Find the third of rate, goal and machines; with all three, say what is to be expected.

    Args:
        profile: what sentences cost.
        machine: each of the machines.
        demand: what is asked for.
        rate: sentences a second, of all machines together.
        p95: the goal [seconds].
        machines: number of machines.

    Raises:
        PlanError: no number of machines keeps the goal, or the server refuses such requests.
    """
    if demand.sentences > machine.shape.waiting_limit:
        raise PlanError(
            f"--texts-per-request {demand.sentences}: a front end of this server lets {machine.shape.waiting_limit}"
            " sentences wait, so it refuses each such request"
        )
    most = None
    if p95 is not None and (rate is None or machines is None):
        most = highest_rate(profile, machine, demand, p95)
        if not most:
            lone = lone_outcome(profile, machine, demand).latency(0.95)
            raise PlanError(_LATE.format(lone=1000 * lone, goal=1000 * p95))
        if machines is None:
            assert rate is not None, "two of the three are known"
            machines = math.ceil(rate / most)
            if machines > _MOST_MACHINES:
                raise PlanError(f"--rate {rate:g} takes more than {_MOST_MACHINES:,} machines")
        else:
            rate = most * machines
    assert rate is not None, "two of the three are known"
    assert machines is not None, "two of the three are known"
    outcome = outcome_at(profile, machine, demand, rate / machines, p95 or 0.0)
    limits = limits_of(profile, machine, demand)
    return Plan(profile, machine, machines, rate, p95, most, outcome, limits, demand.sentences)
