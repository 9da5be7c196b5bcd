"""What the simulation of `translane-plan` says of machines of many sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from translane_plan.machines import Machine, fitting_front_ends, machine_of
from translane_plan.profile import Profile
from translane_plan.sizing import Demand, highest_rate, limits_of, outcome_at

P95 = 0.25  # seconds: the goal of all rates
CORES = (4, 8, 16, 32, 64)  # of a machine
FRONT_ENDS = (1, 2, 8)
LATENCY_CORES = (4, 64)
LOADS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0)  # of the highest rate
REQUESTS, REQUESTS_OF_A_CORE = 3000, 150  # of each simulation: the more of both


def modelled(profile: Profile) -> dict[str, Any]:
    """Rates and latencies of machines, as JSON values; times in seconds, memory in bytes."""
    demands = {cores: Demand(profile.lengths, requests=max(REQUESTS, REQUESTS_OF_A_CORE * cores)) for cores in CORES}
    fitting = {cores: fitting_front_ends(profile, cores, profile.lengths, 1) for cores in CORES}
    machines = {cores: machine_of(profile, cores, front_ends=number) for cores, number in fitting.items()}
    rates = {cores: highest_rate(profile, machine, demands[cores], P95) for cores, machine in machines.items()}
    return {
        "machines": {
            str(cores): _told(profile, machine, demands[cores], rates[cores]) for cores, machine in machines.items()
        },
        "front_ends": {
            str(number): {
                str(cores): highest_rate(profile, machine_of(profile, cores, front_ends=number), demands[cores], P95)
                for cores in CORES
                if number <= cores
            }
            for number in FRONT_ENDS
        },
        "latency": {
            str(cores): _latencies(profile, machines[cores], demands[cores], rates[cores])
            for cores in LATENCY_CORES
            if rates[cores]
        },
        "traffic": {"received": profile.traffic.received, "sent": profile.traffic.sent},
    }


def _told(profile: Profile, machine: Machine, demand: Demand, rate: float) -> dict[str, Any]:
    outcome = outcome_at(profile, machine, demand, rate or limits_of(profile, machine, demand).rate / 100, P95)
    return {
        "cores": machine.cores,
        "front_ends": machine.shape.front_ends,
        "replicas": machine.shape.replicas,
        "rows": sum(map(sum, machine.shape.rows)),
        "memory": machine.memory(profile),
        "rate": rate,
        "busy": {"front_ends": outcome.front_ends, "replicas": outcome.replicas, "cores": outcome.cores},
        "step_rows": outcome.rows,
    }


def _latencies(profile: Profile, machine: Machine, demand: Demand, rate: float) -> list[Mapping[str, float]]:
    found: list[Mapping[str, float]] = []
    for load in LOADS:
        outcome = outcome_at(profile, machine, demand, load * rate, P95)
        found.append({"load": load, "p50": outcome.latency(0.5), "p95": outcome.latency(0.95)})
    return found
