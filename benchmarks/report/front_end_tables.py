"""Tables of docs/front-ends.md: what was measured of front ends, and what the model makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.measuring.front_end_model import Costs, Machine, Simulated, others_of, simulate

# Where the rates were measured: the kernel groups processes by sessions there, so a niceness does not count.
CORES_HERE, NICE_HERE = 2, False
CORES = (4, 8, 16, 32, 64)
NUMBERS = (1, 2, 3, 4, 6, 8, 12, 16)  # front ends
CONNECTIONS = (2, 8, 64, 1024)
SENTENCES = {"short": 1.0, "long": 5.0}  # how much decoding they take
CALLS_OF_A_CORE = 32  # open at the same time
CORES_OF_CONNECTIONS = 16
MOST_REPLICAS = 16  # that a front end has of a small model, see dispatch.plan
RUNS = 2  # simulations, each with connections placed anew
RUNS_OF_CONNECTIONS = 4  # chance matters more where there are few
# Share of a front end's processor time that gRPC's threads take beside the event loop: their own clocks said so, with
# 64 calls at once.
THREADS = 0.15
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


def modelled_tables(parts: Parts, rates: Rates, callers: tuple[int, int, int]) -> str:
    """The model beside what was measured; by cores and front ends; and by connections."""
    processes, connections, calls = callers
    total = processes * connections * calls
    checks = ["| answers | front ends | measured: requests/s | model | off by | other programs want [cores] |"]
    checks.append("|---|---:|---:|---:|---:|---:|")
    for kind, listed in rates.items():
        replicas = 2 if kind == "decoded" else 0
        costs = costs_of(parts, rates, kind, total // 2)
        machine = Machine(CORES_HERE, 1, replicas, processes * connections, total, processes, nice=NICE_HERE)
        machine = replace(machine, others=others_of(machine, costs, listed[0]["rates"]))
        for each in listed:
            found = simulate(replace(machine, front_ends=int(each["name"])), costs, RUNS).rate
            off = found / each["rates"] - 1
            cells = f"{each['rates']:,.0f} | {found:,.0f} | {off:+.0%} | {machine.others:.1f}"
            checks.append(f"| {kind} | {each['name']} | {cells} |")
    costs = replace(costs_of(parts, rates, "decoded", total // 2), caller=0.0)
    return "\n\n".join(["\n".join(checks), _by_cores(costs), _by_connections(costs)])


def _by_cores(costs: Costs) -> str:
    heads = " | ".join(f"{number} front ends" if number > 1 else "1 front end" for number in NUMBERS)
    lines = [f"| sentences | cores | {heads} | best |", f"|---|---:|{'---:|' * (len(NUMBERS) + 1)}"]
    for name, times in SENTENCES.items():
        scaled = replace(costs, alone=times * costs.alone, more=times * costs.more)
        lines += [_row(name, cores, scaled) for cores in CORES]
    return "\n".join(lines)


def _row(name: str, cores: int, costs: Costs) -> str:
    found = {
        number: _simulated(cores, number, CALLS_OF_A_CORE * cores, costs, RUNS) for number in NUMBERS if number <= cores
    }
    most = max(each.rate for each in found.values())
    best = min(number for number, each in found.items() if each.rate >= ENOUGH * most)
    cells = [_cell(found[number]) if number in found else "" for number in NUMBERS]
    return f"| {name} | {cores} | {' | '.join(cells)} | {best} |"


def _simulated(cores: int, front_ends: int, connections: int, costs: Costs, runs: int) -> Simulated:
    replicas = min(cores, front_ends * MOST_REPLICAS)
    machine = Machine(cores, front_ends, replicas, connections, max(connections, CALLS_OF_A_CORE * cores))
    return simulate(machine, costs, runs)


def _cell(found: Simulated) -> str:
    return f"{found.rate:,.0f} ({found.p95 * 1e3:.0f})"


def _by_connections(costs: Costs) -> str:
    heads = " | ".join(f"{number} front ends" if number > 1 else "1 front end" for number in NUMBERS)
    lines = [f"| connections | {heads} |", f"|---:|{'---:|' * len(NUMBERS)}"]
    for connections in CONNECTIONS:
        cells = [
            _cell(_simulated(CORES_OF_CONNECTIONS, number, connections, costs, RUNS_OF_CONNECTIONS))
            for number in NUMBERS
        ]
        lines.append(f"| {connections:,} | {' | '.join(cells)} |")
    return "\n".join(lines)
