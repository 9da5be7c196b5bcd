"""A model of a server with several front ends: requests a second and waits, for machines that are not at hand.

The model is the simulation of `translane_plan`, with costs that were measured under load. Callers keep calls open on
connections. A connection belongs to a front end that chance chooses, as SO_REUSEPORT does. A replica with `n` sentences
works `alone + (n - 1) * more` until each of them is decoded, in steps of equal length. Callers on the same machine work
as front ends do. The model knows no cost of memory that many cores share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from translane_plan.profile import Curve, Length, LoopCosts, Memory, Profile, ReplicaCosts, Traffic
from translane_plan.simulation.load import waiting_callers
from translane_plan.simulation.shape import Shape
from translane_plan.simulation.simulation import simulate as simulate_load

# Calls that are simulated: so many, and so many for each one that is open. All begin at once, so the first share of
# them is ignored.
_CALLS, _CALLS_OF_EACH, _IGNORED = 4000, 10, 0.25
_STEPS = 24  # of a sentence
_ROWS = 4096  # of a replica: more than are ever in use


@dataclass(frozen=True)
class Costs:
    """Processor times of a request of one sentence [seconds].

    Attributes:
        front_end: of the front end's event loop.
        threads: of gRPC's threads, beside the event loop.
        alone: of a replica that decodes one sentence.
        more: of a replica, for each other sentence that it decodes at the same time.
        caller: of a process of callers; 0 if the callers have machines of their own.
    """

    front_end: float
    threads: float
    alone: float
    more: float
    caller: float = 0.0


@dataclass(frozen=True)
class Machine:
    """What is simulated.

    Attributes:
        cores: of the machine.
        front_ends: at most as many as replicas.
        replicas: of all front ends, of one thread each; 0 if answers come from the cache.
        connections: of all callers.
        calls: that are open at the same time, on all connections.
        callers: processes of callers on this machine.
        others: cores that other programs on this machine want all the time.
        nice: whether front ends go before replicas; see `translane_plan.simulation.processors`.
    """

    cores: float
    front_ends: int
    replicas: int
    connections: int
    calls: int
    callers: int = 0
    others: float = 0.0
    nice: bool = True


@dataclass(frozen=True)
class Simulated:
    """Requests a second, and the wait that 95% of the calls stay within [seconds]."""

    rate: float
    p95: float


def simulate(machine: Machine, costs: Costs, runs: int = 1) -> Simulated:
    """Simulate a machine. With several runs, chance places the connections anew, and the means count."""
    profile = _profile(costs)
    rows = [
        tuple(min(_ROWS, machine.calls) for number in range(machine.replicas) if number % machine.front_ends == place)
        for place in range(machine.front_ends)
    ]
    shape = Shape(
        machine.cores,
        rows,
        waiting_limit=2**31,
        others=machine.others,
        caller_processes=machine.callers,
        nice=machine.nice,
    )
    requests = max(_CALLS, _CALLS_OF_EACH * machine.calls)
    found = []
    for seed in range(runs):
        load = waiting_callers(
            machine.calls, requests, profile.lengths, connections=machine.connections, warm_up=_IGNORED, seed=seed
        )
        found.append(simulate_load(profile, shape, load, seed))
    return Simulated(sum(each.rate for each in found) / runs, sum(each.latency(0.95) for each in found) / runs)


def others_of(machine: Machine, costs: Costs, rate: float) -> float:
    """Return how many cores other programs want, if the machine's rate is `rate` requests a second.

    Returns:
        From 0, where the model is not faster than `rate` even without them, to 16.
    """
    low, high = 0.0, 16.0
    for _ in range(10):
        middle = (low + high) / 2
        if simulate(replace(machine, others=middle), costs).rate > rate:
            low = middle
        else:
            high = middle
    return low


def _profile(costs: Costs) -> Profile:
    """A profile of sentences that are all alike, and of parts that cost nothing to wake."""
    front = costs.front_end + costs.threads
    return Profile(
        model="any",
        precision="any",
        parameters=1,
        device="cpu",
        processor="any",
        versions={},
        measured="",
        threads=1,
        run_cost=0,
        source_capacity=256,
        replica=ReplicaCosts(
            steps=Curve(counts=(1, 2), seconds=(costs.alone / _STEPS, (costs.alone + costs.more) / _STEPS)),
            key=0.0,
            encodes=Curve(counts=(1,), seconds=(0.0,)),
            turn=0.0,
            sentence=0.0,
            wake=0.0,
        ),
        front_end=LoopCosts(request=front, threads=costs.threads / front),
        caller=LoopCosts(request=costs.caller),
        delay=0.0,
        start=0.0,
        memory=Memory(front_end=0.0, weights=0.0, replica=0.0, row=0.0),
        traffic=Traffic(received=0.0, sent=0.0),
        lengths=(Length(1, _STEPS),),
    )
