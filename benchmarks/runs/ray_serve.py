"""What Ray Serve costs beside a server of its own: a call alone, and many calls at once.

    python -m benchmarks.runs.ray_serve
    python -m benchmarks.runs.ray_serve --write    # into docs/ray-serve.md

*Alone*: one caller sends one call after the other. *At once*: two processes of callers keep 64 calls open each. Servers
and Ray take turns in both, each with the same engines: replicas of one thread. So the tables compare the way of a call,
and not the decoder. Processor time is that of all processes of a server, or of all of Ray's.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from benchmarks.engines.server_process import translane
from benchmarks.machine import Usage, family
from benchmarks.measuring.front_end_load import Callers
from benchmarks.measuring.turns import METHODS, over_grpc
from benchmarks.places import DEMO, ROOT
from benchmarks.report.marked_part import write_part
from helpers.ray_cluster.serve import ray_serve
from translane_client.bench.measurement import quantile
from translane_plan.measuring.processes import cpu_seconds

PAGE = ROOT / "docs" / "ray-serve.md"
ROUNDS, CALLS, SECONDS = 9, 100, 3.0
CALLERS = (2, 8, 8)  # processes, connections of each, calls that are open on each connection
FLAGS = ["--threads", "1", "--device", "cpu", "--sentences-waiting", "4096", "--caller-share", "1"]


@dataclass
class System:
    """A server, or Ray with the application, and what each round has found.

    Attributes:
        processes: all of its processes.
        waits: medians of a call alone, by method [seconds].
        used: processor time of a call alone, by method [seconds].
        rates: calls a second, of many at once.
        p95: the wait that 95% of these calls stay within [seconds].
        used_at_once: processor time of one of these calls [seconds].
    """

    name: str
    address: str
    processes: Sequence[int]
    waits: dict[str, list[float]] = field(default_factory=dict)
    used: dict[str, list[float]] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    p95: list[float] = field(default_factory=list)
    used_at_once: list[float] = field(default_factory=list)

    def measure_alone(self, method: str, calls: int) -> None:
        """Send calls one after the other."""
        with grpc.insecure_channel(self.address) as channel:
            call = over_grpc(channel, method)
            call()
            waits = []
            before = cpu_seconds(self.processes)
            for _ in range(calls):
                start = time.perf_counter()
                call()
                waits.append(time.perf_counter() - start)
        self.used.setdefault(method, []).append((cpu_seconds(self.processes) - before) / calls)
        self.waits.setdefault(method, []).append(statistics.median(waits))

    def measure_at_once(self, callers: Callers, seconds: float) -> None:
        """Keep many calls open."""
        before = cpu_seconds(self.processes)
        told: list[dict[str, Any]] = callers.call(self.address, seconds)
        used = cpu_seconds(self.processes) - before
        waits = sorted(wait for each in told for wait in each["waits"])
        self.rates.append(len(waits) / max(each["seconds"] for each in told))
        self.p95.append(quantile(waits, 0.95))
        self.used_at_once.append(used / len(waits))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--calls", type=int, default=CALLS, help="alone, in each round")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a round of many calls at once")
    parser.add_argument("--engines", type=int, nargs="+", default=[1, 2], help="replicas of one thread")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/ray-serve.md")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        systems = [system for count in arguments.engines for system in _systems(stack, folder, count)]
        callers = stack.enter_context(Callers(*CALLERS))
        usage = Usage()
        for number in range(arguments.rounds):
            turn = [systems[(place + number) % len(systems)] for place in range(len(systems))]
            for system in turn:
                for method in METHODS:
                    system.measure_alone(method, arguments.calls)
            for system in turn:
                system.measure_at_once(callers, arguments.seconds)
        others = usage.so_far()["others"]
    lines = "\n\n".join([alone_table(systems), at_once_table(systems), _told_of_others(others)])
    print(lines)
    if arguments.write:
        write_part(PAGE, "costs of Ray Serve", "python -m benchmarks.runs.ray_serve --write", lines)


def _systems(stack: ExitStack, folder: Path, engines: int) -> list[System]:
    """A server with so many replicas, and Ray with so many Serve replicas of one replica each."""
    several = f"{engines} engine{'s' * (engines > 1)}"
    server = stack.enter_context(translane(DEMO, ["--replicas", str(engines), *FLAGS]))
    (folder / several).mkdir()
    argv = [str(DEMO), "--replicas", "1", *FLAGS, "--metrics-port", "0", "--serve-replicas", str(engines)]
    ray = stack.enter_context(ray_serve(folder / several, argv))
    return [
        System(f"translane serve, {several}", server.address, family(server.pid)),
        System(f"Ray Serve, {several}", ray.address, family(ray.pid)),
    ]


def alone_table(systems: Sequence[System]) -> str:
    """A row for each method and system. The difference is the median of the rounds' differences to the first system."""
    lines = [
        "| a call alone | by | median [ms] | to the first [ms] | processor time [ms] |",
        "|---|---|---:|---:|---:|",
    ]
    for method in METHODS:
        for system in systems:
            more = (a - b for a, b in zip(system.waits[method], systems[0].waits[method], strict=True))
            figures = statistics.median(system.waits[method]), statistics.median(more)
            used = statistics.median(system.used[method])
            lines.append(
                f"| {method} | {system.name} | {figures[0] * 1e3:.2f} | {figures[1] * 1e3:+.2f} | {used * 1e3:.2f} |"
            )
    return "\n".join(lines)


def at_once_table(systems: Sequence[System]) -> str:
    """A row for each system. The ratio is the median of the rates' ratios to the same rounds of the first system."""
    calls = CALLERS[0] * CALLERS[1] * CALLERS[2]
    lines = [
        f"| {calls} calls at once | calls a second | to the first | 95% within [ms] | processor time [ms] |",
        "|---|---:|---:|---:|---:|",
    ]
    for system in systems:
        ratio = statistics.median(a / b for a, b in zip(system.rates, systems[0].rates, strict=True))
        rate, p95 = statistics.median(system.rates), statistics.median(system.p95)
        used = statistics.median(system.used_at_once)
        lines.append(f"| {system.name} | {rate:.0f} | {ratio:.2f} | {p95 * 1e3:.0f} | {used * 1e3:.2f} |")
    return "\n".join(lines)


def _told_of_others(share: float) -> str:
    return f"Other programs had {share:.0%} of the processors meanwhile."


if __name__ == "__main__":
    main()
