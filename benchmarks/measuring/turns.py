"""Ways to call a server, which take turns: what a call waits, and what it costs each process.

One caller sends one call after the other. ListModels is next to nothing but a call; Translate is a short sentence on
the demo model.
"""

from __future__ import annotations

import http.client
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import grpc

from translane.v1 import translation_pb2 as pb
from translane.v1.translation_pb2_grpc import TranslationServiceStub
from translane_plan.measuring.processes import cpu_seconds

METHODS = ("ListModels", "Translate")
ROUNDS, CALLS = 30, 100  # calls in a round
TEXT = "你好。"

Call = Callable[[], object]


@dataclass
class Way:
    """A way to call a server, and the medians of each round, of one call each [seconds].

    Attributes:
        processes: their processor time is counted.
        waits: of the caller.
        used: processor time of each process.
    """

    name: str
    call: Call
    processes: Sequence[int]
    waits: list[float] = field(default_factory=list)
    used: list[tuple[float, ...]] = field(default_factory=list)

    def measure(self, calls: int) -> None:
        """Send `calls` calls, one after the other."""
        waits = []
        before = [cpu_seconds([process]) for process in self.processes]
        for _ in range(calls):
            start = time.perf_counter()
            self.call()
            waits.append(time.perf_counter() - start)
        after = [cpu_seconds([process]) for process in self.processes]
        self.used.append(tuple((now - then) / calls for now, then in zip(after, before, strict=True)))
        self.waits.append(statistics.median(waits))


def take_turns(ways: Mapping[str, Sequence[Way]], rounds: int, calls: int) -> None:
    """Measure the ways to call each method. Nobody is always first."""
    for number in range(rounds):
        for listed in ways.values():
            for place in range(len(listed)):
                listed[(place + number) % len(listed)].measure(calls)


def over_grpc(channel: grpc.Channel, method: str) -> Call:
    """Call `method` through `channel`."""
    stub = TranslationServiceStub(channel)  # type: ignore[no-untyped-call]
    if method == "ListModels":
        return lambda: stub.ListModels(pb.ListModelsRequest())
    return lambda: stub.Translate(pb.TranslateRequest(texts=[TEXT]))


def over_http(connection: http.client.HTTPConnection, method: str) -> Call:
    """Call `method` with JSON through `connection`."""
    body = json.dumps({} if method == "ListModels" else {"texts": [TEXT]}).encode()

    def call() -> object:
        path = f"/translane.v1.TranslationService/{method}"
        connection.request("POST", path, body, {"content-type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status == 200, content
        return content

    return call


def table(ways: Mapping[str, Sequence[Way]], processes: Sequence[str]) -> str:
    """A row for each way. The difference is the median of what each round has more than the same round's first way.

    Args:
        ways: by method.
        processes: what the processes of every way are called.
    """
    heads = " | ".join(f"{process} [ms]" for process in processes)
    lines = [
        f"| call | way | median [ms] | to the first way [ms] | {heads} |",
        "|---|---|---:|---:|" + "---:|" * len(processes),
    ]
    for method, listed in ways.items():
        for way in listed:
            more = statistics.median(a - b for a, b in zip(way.waits, listed[0].waits, strict=True))
            used = " | ".join(f"{statistics.median(of) * 1e3:.2f}" for of in zip(*way.used, strict=True))
            median = statistics.median(way.waits)
            lines.append(f"| {method} | {way.name} | {median * 1e3:.2f} | {more * 1e3:+.2f} | {used} |")
    return "\n".join(lines)
