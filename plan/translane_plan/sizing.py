"""Finds what a machine can do by simulating it at several rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from translane_plan.machines import Machine, sentence_work
from translane_plan.profile import Length, Profile
from translane_plan.simulation.load import poisson
from translane_plan.simulation.outcome import Outcome
from translane_plan.simulation.simulation import simulate

_PRECISION = 1.02  # the search ends where the lowest rate that fails is at most this times the highest rate kept
_GOALS = 10.0  # a simulation lasts as many times as long as the goal, so that a queue that grows is seen
_MOST = 10  # times as many requests as asked for, at most
MOST_SENTENCES = 10_000_000  # of a simulation
_LONE_RATE = 0.02  # a share of what a machine can do at most: hardly any request meets another one


@dataclass(frozen=True)
class Demand:
    """What is asked for, but the rate.

    Attributes:
        lengths: lengths of the sentences.
        sentences: sentences of a request.
        requests: requests that are simulated.
        seed: the same seed gives the same outcome.
    """

    lengths: Sequence[Length]
    sentences: int = 1
    requests: int = 20_000
    seed: int = 0


@dataclass(frozen=True)
class Limits:
    """The rates at which each part of a machine has no time left, if the others had [sentences a second].

    Attributes:
        front_ends: the event loops of all front ends.
        replicas: all replicas, with all rows in use.
        cores: front ends and replicas together.
    """

    front_ends: float
    replicas: float
    cores: float

    @property
    def least(self) -> str:
        """The part that is the limit."""
        return min(("front ends", self.front_ends), ("replicas", self.replicas), ("cores", self.cores), key=_rate)[0]

    @property
    def rate(self) -> float:
        """The least of the rates."""
        return min(self.front_ends, self.replicas, self.cores)


def limits_of(profile: Profile, machine: Machine, demand: Demand) -> Limits:
    """What each part of a machine could do, if requests never came by chance."""
    shape, costs = machine.shape, profile.front_end
    choice = costs.dispatch * max(0.0, shape.replicas / shape.front_ends - 1)
    front = costs.request / demand.sentences + costs.sentence + choice
    replica = sentence_work(profile, demand.lengths, max(map(max, shape.rows)))
    threads = profile.threads if profile.device == "cpu" else 1
    return Limits(
        front_ends=shape.front_ends / (front * (1 - costs.threads)) if front else float("inf"),
        replicas=shape.replicas / replica,
        cores=machine.cores / (front + threads * replica),
    )


def outcome_at(profile: Profile, machine: Machine, demand: Demand, rate: float, p95: float = 0.0) -> Outcome:
    """Simulate a machine at a rate [sentences a second], for long enough to see whether it keeps `p95` [seconds]."""
    least = int(rate / demand.sentences * _GOALS * p95)
    most = min(_MOST * demand.requests, max(demand.requests, MOST_SENTENCES // demand.sentences))
    requests = min(max(demand.requests, least), most)
    load = poisson(rate, requests, demand.lengths, sentences=demand.sentences, seed=demand.seed)
    return simulate(profile, machine.shape, load, demand.seed)


def lone_outcome(profile: Profile, machine: Machine, demand: Demand) -> Outcome:
    """Simulate requests that hardly meet each other."""
    rate = _LONE_RATE * limits_of(profile, machine, demand).rate
    few = Demand(demand.lengths, demand.sentences, min(demand.requests, 4000), demand.seed)
    return outcome_at(profile, machine, few, rate)


def highest_rate(profile: Profile, machine: Machine, demand: Demand, p95: float) -> float:
    """The highest rate of a machine of which 95% of the requests are answered within `p95` seconds.

    Returns:
        Sentences a second; 0 if a lone request takes too long.
    """
    if lone_outcome(profile, machine, demand).latency(0.95) > p95:
        return 0.0
    low, high = 0.0, 1.02 * limits_of(profile, machine, demand).rate
    rate = 0.85 * high
    while high > _PRECISION * low:
        if outcome_at(profile, machine, demand, rate, p95).keeps(p95):
            low = rate
        else:
            high = rate
        rate = (low + high) / 2 if low else high / 2
        if high < _LONE_RATE * limits_of(profile, machine, demand).rate:
            return 0.0
    return low


def _rate(part: tuple[str, float]) -> float:
    return part[1]
