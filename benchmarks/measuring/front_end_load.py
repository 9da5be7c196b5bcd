"""Load on a server with front ends from processes of callers: rates, waits, and who uses the processor."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType

import psutil

from benchmarks.engines.server_process import ServerProcess
from benchmarks.machine import family
from benchmarks.places import ROOT
from translane_client.bench.measurement import quantile
from translane_plan.measuring.processes import cpu_seconds

_REPLICA = "translane_server.replica"  # in the command lines of replicas, and of the processes that they fork from


class Callers:
    """Processes of callers; see `benchmarks.engines.callers`. A `with` statement ends them.

    Args:
        processes: how many there are.
        connections: of each process.
        calls: that are open on each connection.
    """

    def __init__(self, processes: int, connections: int, calls: int) -> None:
        program = [sys.executable, "-m", "benchmarks.engines.callers"]
        command = [*program, "--connections", str(connections), "--calls", str(calls)]
        self._stack = ExitStack()
        self._processes = [
            self._stack.enter_context(
                subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(processes)
        ]

    def __enter__(self) -> Callers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.terminate()
        self._stack.__exit__(kind, error, trace)

    def call(self, address: str, seconds: float) -> list[dict[str, object]]:
        """Let all processes call a server at the same time, and return what they tell.

        Raises:
            RuntimeError: a process of callers has ended.
        """
        for process in self._processes:
            assert process.stdin
            process.stdin.write(f"{address} {seconds}\n")
            process.stdin.flush()
        told = []
        for process in self._processes:
            assert process.stdout
            line = process.stdout.readline()
            if not line:
                raise RuntimeError("a process of callers has ended")
            told.append(json.loads(line))
        return told


@dataclass
class Loaded:
    """A server under load, and what each round has found.

    Attributes:
        rates: requests a second.
        p95: the wait that 95% of the calls stay within [seconds].
        front_ends, replicas, callers: processor time of a request [seconds].
        cores: that all of them had, of the machine's.
    """

    name: str
    server: ServerProcess
    rates: list[float] = field(default_factory=list)
    p95: list[float] = field(default_factory=list)
    front_ends: list[float] = field(default_factory=list)
    replicas: list[float] = field(default_factory=list)
    callers: list[float] = field(default_factory=list)
    cores: list[float] = field(default_factory=list)

    def measure(self, callers: Callers, seconds: float) -> None:
        """Call the server for a round."""
        fronts, replicas = processes_of(self.server)
        before = cpu_seconds(fronts), cpu_seconds(replicas)
        told = callers.call(self.server.address, seconds)
        after = cpu_seconds(fronts), cpu_seconds(replicas)
        waits = sorted(wait for each in told for wait in _numbers(each["waits"]))
        lasted = max(_number(each["seconds"]) for each in told)
        called = sum(_number(each["cpu"]) for each in told)
        used = after[0] - before[0], after[1] - before[1]
        self.rates.append(len(waits) / lasted)
        self.p95.append(quantile(waits, 0.95))
        self.front_ends.append(used[0] / len(waits))
        self.replicas.append(used[1] / len(waits))
        self.callers.append(called / len(waits))
        self.cores.append((sum(used) + called) / lasted)

    def told(self, first: Loaded) -> dict[str, object]:
        """The medians of the rounds. The ratio is the median of the rates' ratios to the same rounds of `first`."""
        names = ("rates", "p95", "front_ends", "replicas", "callers", "cores")
        medians = {name: statistics.median(getattr(self, name)) for name in names}
        ratio = statistics.median(a / b for a, b in zip(self.rates, first.rates, strict=True))
        return {"name": self.name, "ratio": ratio, **medians}


def processes_of(server: ServerProcess) -> tuple[list[int], list[int]]:
    """The processes of a server that take requests, and those that decode."""
    fronts: list[int] = []
    replicas: list[int] = []
    for process in family(server.pid):
        decodes = any(_REPLICA in word for word in psutil.Process(process).cmdline())
        (replicas if decodes else fronts).append(process)
    return fronts, replicas


def _numbers(value: object) -> list[float]:
    assert isinstance(value, list)
    return value


def _number(value: object) -> float:
    assert isinstance(value, float)
    return value
