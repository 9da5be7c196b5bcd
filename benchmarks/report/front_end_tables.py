"""Tables of docs/front-ends.md: what was measured of front ends, and what the model makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.measuring.front_end_model import Costs, Machine, Simulated, simulate

CORES = (4, 8, 16, 32, 64)
NUMBERS = (1, 2, 3, 4, 6, 8, 12, 16)  # front ends
CONNECTIONS = (2, 8, 64, 1024)
CALLS_OF_A_CORE = 32  # open at the same time
FEW = 16  # cores of the table of connections
RUNS = 3  # simulations, each with connections placed anew
ENOUGH = 0.95  # of the best rate: fewer front ends are better than the last few percent

Parts = Mapping[str, Mapping[str, Sequence[float]]]
Rates = Mapping[str, Sequence[Mapping[str, Any]]]


def parts_table(parts: Parts) -> str:
    """Processor time of each kind of call."""
    lines = ["| call | front end, serial [µs] | 64 at once [µs] | replica, serial [µs] | 64 at once [µs] |"]
    lines.append("|---|---:|---:|---:|---:|")
    for name, part in parts.items():
        cells = [f"{each * 1e6:,.0f}" if each > 1e-6 else "–" for each in (*part["front"], *part["replicas"])]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def rates_table(rates: Rates) -> str:
    """Requests a second and processor time, by the number of front ends."""
    lines = [
        "| answers | front ends | requests/s | to one | p95 [ms] | front ends [s] | replicas [s] | callers [s]"
        " | cores |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for kind, listed in rates.items():
        for each in listed:
            times = " | ".join(f"{each[name] * 1e3:.2f}" for name in ("front_ends", "replicas", "callers"))
            lines.append(
                f"| {kind} | {each['name']} | {each['rates']:,.0f} | {each['ratio']:.2f} | {each['p95'] * 1e3:.0f}"
                f" | {times} | {each['cores']:.2f} |"
            )
    return "\n".join(lines)


def costs_of(parts: Parts, rates: Rates, kind: str, calls: int) -> Costs:
    """The costs of the model: a request's by the rates, and their divisions by the parts.

    Args:
        parts: of a request.
        rates: under load.
        kind: of answers.
        calls: open at the same time for each replica while the rates were measured.
    """
    one = rates[kind][0]
    alone, _ = parts["Translate"]["replicas"]
    each = one["replicas"]  # = (alone + (calls - 1) * more) / calls
    more = max(0.0, each * calls - alone) / (calls - 1)
    return Costs(one["front_ends"] * (1 - THREADS), one["front_ends"] * THREADS, alone, more, one["callers"])


THREADS = 0.15
"""How much of a front end's processor time gRPC's threads take, beside the event loop. The threads' own clocks said so,
at 64 calls at once."""


def modelled_tables(parts: Parts, rates: Rates, callers: tuple[int, int, int]) -> str:
    """The model beside what was measured; by cores and front ends; and by connections."""
    processes, connections, calls = callers
    total = processes * connections * calls
    checks = ["| answers | front ends | measured: requests/s | model | off by | to one: measured | model |"]
    checks.append("|---|---:|---:|---:|---:|---:|---:|")
    for kind, listed in rates.items():
        replicas = 2 if kind == "decoded" else 0
        costs = costs_of(parts, rates, kind, total // 2)
        found: list[Simulated] = []
        for each in listed:
            machine = Machine(each["cores"], int(each["name"]), replicas, processes * connections, total, processes)
            found.append(simulate(machine, costs, RUNS))
            off = found[-1].rate / each["rates"] - 1
            checks.append(
                f"| {kind} | {each['name']} | {each['rates']:,.0f} | {found[-1].rate:,.0f} | {off:+.0%}"
                f" | {each['ratio']:.2f} | {found[-1].rate / found[0].rate:.2f} |"
            )
    costs = _without_callers(costs_of(parts, rates, "decoded", total // 2))
    return "\n\n".join(["\n".join(checks), _by_cores(costs), _by_connections(costs)])


def _without_callers(costs: Costs) -> Costs:
    return Costs(costs.front_end, costs.threads, costs.alone, costs.more)


def _by_cores(costs: Costs) -> str:
    lines = [f"| cores | {' | '.join(map(str, NUMBERS))} | best |", f"|---:|{'---:|' * (len(NUMBERS) + 1)}"]
    for cores in CORES:
        found = {
            number: simulate(Machine(cores, number, cores, 1024, CALLS_OF_A_CORE * cores), costs, RUNS)
            for number in NUMBERS
            if number <= cores
        }
        most = max(each.rate for each in found.values())
        best = min(number for number, each in found.items() if each.rate >= ENOUGH * most)
        cells = [f"{found[n].rate:,.0f} ({found[n].p95 * 1e3:.0f})" if n in found else "" for n in NUMBERS]
        lines.append(f"| {cores} | {' | '.join(cells)} | {best} |")
    return "\n".join(lines)


def _by_connections(costs: Costs) -> str:
    numbers = [number for number in NUMBERS if number <= FEW]
    lines = [f"| connections | {' | '.join(map(str, numbers))} |", f"|---:|{'---:|' * len(numbers)}"]
    for connections in CONNECTIONS:
        calls = max(connections, CALLS_OF_A_CORE * FEW)
        found = [simulate(Machine(FEW, number, FEW, connections, calls), costs, 4 * RUNS) for number in numbers]
        lines.append(
            f"| {connections:,} | {' | '.join(f'{each.rate:,.0f} ({each.p95 * 1e3:.0f})' for each in found)} |"
        )
    return "\n".join(lines)
