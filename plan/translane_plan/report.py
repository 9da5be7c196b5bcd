"""A plan as lines for a terminal, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from translane_plan.plan import Plan
from translane_server.printable import printable

_GIBI = 2**30
_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_LIMITS = {
    "front ends": "front ends: more of them, on more cores",
    "replicas": "replicas: more of them",
    "cores": "cores: more of them, or more machines",
    "latency": "latency: the goal is reached long before a part has no time left",
}


def lines(plan: Plan) -> Iterator[str]:
    """The lines of a report."""
    machine, shape, outcome = plan.machine, plan.machine.shape, plan.outcome
    profile = plan.profile
    yield printable(f"{profile.model} ({profile.precision}), measured on {profile.processor}, {profile.measured}")
    yield ""
    yield _line("machines", f"{plan.machines:,} of {_counted(machine.cores, 'core')}, {_memory(plan)} each")
    yield _line("each runs", f"translane-server {' '.join(flags(plan))}")
    yield _line("rate", f"{plan.rate:,.1f} sentences/s, {plan.share:,.1f} a machine")
    if outcome.refused:
        yield _line("expected", f"too much: {outcome.refused:,} requests are refused")
    elif plan.is_too_much:
        yield _line("expected", "too much: requests wait longer and longer")
    else:
        yield _line(
            "expected", f"p50 {_milliseconds(outcome.latency(0.5))}, p95 {_milliseconds(outcome.latency(0.95))}"
        )
    if plan.p95 is not None:
        yield _line("goal", f"p95 {_milliseconds(plan.p95)}: {'kept' if plan.is_kept else 'missed'}")
    busy = f"front ends {outcome.front_ends:.0%}, replicas {outcome.replicas:.0%}, cores {outcome.cores:.0%}"
    yield _line("busy", f"{busy}; {outcome.rows:.1f} of {max(map(max, shape.rows))} rows in a step")
    received, sent = traffic(plan)
    yield _line("network", f"{received / 1e6:,.2f} Mbit/s in, {sent / 1e6:,.2f} Mbit/s out, a machine")
    most = "" if plan.most is None else f", at {plan.most:,.1f} sentences/s a machine"
    yield _line("limit", _LIMITS[plan.limit] + most)
    yield ""
    yield "Simulated, not measured: docs/scaling.md says how far to trust it."


def as_json(plan: Plan) -> dict[str, Any]:
    """The plan, in base units."""
    machine, outcome = plan.machine, plan.outcome
    received, sent = traffic(plan)
    return {
        "model": plan.profile.model,
        "machines": plan.machines,
        "machine": {
            "cores": machine.cores,
            "front_ends": machine.shape.front_ends,
            "replicas": machine.shape.replicas,
            "threads": machine.threads,
            "rows": sum(map(sum, machine.shape.rows)),
            "memory_bytes": machine.memory(plan.profile),
            "flags": flags(plan),
        },
        "sentences_per_second": plan.rate,
        "sentences_per_second_of_a_machine": plan.share,
        "highest_rate_of_a_machine": plan.most,
        "p95_bound_seconds": plan.p95,
        "is_kept": plan.is_kept,
        "latency_seconds": {name: _known(outcome.latency(share)) for name, share in _QUANTILES.items()},
        "requests": len(outcome.latencies),
        "refused": outcome.refused,
        "is_too_much": plan.is_too_much,
        "busy": {"front_ends": outcome.front_ends, "replicas": outcome.replicas, "cores": outcome.cores},
        "rows_of_a_step": outcome.rows,
        "network_bits_per_second": {"received": received, "sent": sent},
        "limit": plan.limit,
        "limits": {
            "front_ends": _known(plan.limits.front_ends),
            "replicas": plan.limits.replicas,
            "cores": plan.limits.cores,
        },
    }


def flags(plan: Plan) -> list[str]:
    """The flags of the server on each machine."""
    shape = plan.machine.shape
    numbers = {
        "--front-ends": shape.front_ends,
        "--replicas": shape.replicas,
        "--threads": plan.machine.threads,
        "--rows": sum(map(sum, shape.rows)),
    }
    return [word for name, number in numbers.items() for word in (name, str(number))]


def traffic(plan: Plan) -> tuple[float, float]:
    """What a machine receives and sends [bit/s]. Each sentence counts as a request, so this is rather too much."""
    traffic = plan.profile.traffic
    return 8 * traffic.received * plan.share, 8 * traffic.sent * plan.share


def _known(value: float) -> float | None:
    """The value for JSON, which has neither nan nor infinity."""
    return value if math.isfinite(value) else None


def _line(name: str, value: str) -> str:
    return f"{name:<10}  {value}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _memory(plan: Plan) -> str:
    return f"{plan.machine.memory(plan.profile) / _GIBI:.1f} GiB"


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.1f} ms"
