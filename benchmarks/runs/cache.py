"""What a text costs that the cache knows, beside one that it does not know, and one that a server without a cache gets.

    python -m benchmarks.runs.cache
    python -m benchmarks.runs.cache --write    # into docs/server.md

One caller sends one call of one short sentence after the other, on the demo model. In each round every way to be
answered gets the same sentences, which no server has seen before: first a server without a cache, then a server with
one, then that server again. The tables have medians of the rounds, and the processor time of the server's process and
of all its processes, which other programs change little. The look-up itself is measured in this process.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

import grpc

from benchmarks.engines.server_process import ServerProcess
from benchmarks.places import DEMO, ROOT
from benchmarks.report.marked_part import write_part
from translane.v1 import translation_pb2 as pb
from translane.v1.translation_pb2_grpc import TranslationServiceStub
from translane_plan.measuring.processes import cpu_seconds
from translane_server.requests.answers import AnswerCache, Recalled

PAGE = ROOT / "docs" / "server.md"
ROUNDS, CALLS = 30, 60
CACHE_BYTES = 16 * 1024 * 1024
WITHOUT, UNKNOWN, KNOWN = "without a cache", "unknown to the cache", "known to the cache"
LOOK_UPS = {"a sentence of 20 characters": 20, "a page of 5,000": 5_000, "a text of 1,000,000": 1_000_000}


@dataclass
class Measured:
    """The medians of each round, of one call each [seconds]."""

    wait: list[float] = field(default_factory=list)
    server: list[float] = field(default_factory=list)
    processes: list[float] = field(default_factory=list)


class Caller:
    """Calls one server."""

    def __init__(self, server: ServerProcess, stack: ExitStack) -> None:
        self._server = stack.enter_context(server)
        channel = stack.enter_context(grpc.insecure_channel(server.address))
        self._translate = TranslationServiceStub(channel).Translate  # type: ignore[no-untyped-call]

    def measure(self, texts: list[str], known: int, measured: Measured) -> None:
        """Send each text in a call of its own, of which the server is to know a number."""
        server, processes = cpu_seconds([self._server.pid]), self._server.cpu_seconds()
        waits = []
        for text in texts:
            request = pb.TranslateRequest(texts=[text])
            start = time.perf_counter()
            answer = self._translate(request)
            waits.append(time.perf_counter() - start)
            if answer.timing.cached_texts != known:
                raise SystemExit(f"the cache was to know {known} texts, and knew {answer.timing.cached_texts}")
        measured.wait.append(statistics.median(waits))
        measured.server.append((cpu_seconds([self._server.pid]) - server) / len(texts))
        measured.processes.append((self._server.cpu_seconds() - processes) / len(texts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--calls", type=int, default=CALLS, help="in each round")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/server.md")
    arguments = parser.parse_args()
    lines = f"{table(measure(arguments.rounds, arguments.calls))}\n\n{look_up_table()}"
    print(lines)
    if arguments.write:
        write_part(PAGE, "costs of the cache", "python -m benchmarks.runs.cache --write", lines)


def measure(rounds: int, calls: int) -> Mapping[str, Measured]:
    """Measure each way to be answered."""
    command = ["-m", "translane", "serve", str(DEMO), "--metrics-port", "0", "--replicas", "1"]
    command += ["--threads", "1", "--device", "cpu"]
    found = {name: Measured() for name in (WITHOUT, UNKNOWN, KNOWN)}
    with ExitStack() as stack:
        without = Caller(ServerProcess(command), stack)
        cached = Caller(ServerProcess([*command, "--cache-bytes", str(CACHE_BYTES)]), stack)
        for number in range(rounds):
            texts = [f"我有{number * calls + place}本书。" for place in range(calls)]
            without.measure(texts, 0, found[WITHOUT])
            cached.measure(texts, 0, found[UNKNOWN])
            cached.measure(texts, 1, found[KNOWN])
    return found


def table(found: Mapping[str, Measured]) -> str:
    """A row for each way to be answered."""
    rows = [
        "| a call of a sentence | wait | processor time of the server | and of its replica |",
        "|---|---:|---:|---:|",
    ]
    for name, measured in found.items():
        replica = [both - own for both, own in zip(measured.processes, measured.server, strict=True)]
        cells = " | ".join(
            f"{max(0.0, statistics.median(each)) * 1e6:,.0f} µs" for each in (measured.wait, measured.server, replica)
        )
        rows.append(f"| {name} | {cells} |")
    return "\n".join(rows)


def look_up_table() -> str:
    """What the cache itself takes for a text, and what a server without a cache does in its place."""
    rows = ["| processor time of the look-up alone | unknown | known | without a cache |", "|---|---:|---:|---:|"]
    for name, length in LOOK_UPS.items():
        cache, request = AnswerCache(CACHE_BYTES), pb.TranslateRequest(texts=["x" * length])
        answer = [pb.Translation(hypotheses=[pb.Hypothesis(text="y" * length)])]

        def look_up(cache: AnswerCache = cache, request: pb.TranslateRequest = request) -> Recalled:
            return cache.recall(request, "caller")

        def without(request: pb.TranslateRequest = request) -> Recalled:
            return Recalled(request)

        def use(answer: list[pb.Translation] = answer, look_up: Callable[[], Recalled] = look_up) -> None:
            look_up().whole(answer)

        unknown, nothing = _seconds(look_up, length), _seconds(without, length)
        first = look_up()
        first.whole(answer)
        first.keep()
        known = _seconds(use, length)
        rows.append(f"| {name} | " + " | ".join(f"{each * 1e6:,.1f} µs" for each in (unknown, known, nothing)) + " |")
    return "\n".join(rows)


def _seconds(call: Callable[[], object], length: int) -> float:
    """The median processor time of a call in rounds of some milliseconds."""
    count = max(3, 200_000 // (length + 200))
    times = []
    for _ in range(15):
        start = time.process_time()
        for _ in range(count):
            call()
        times.append((time.process_time() - start) / count)
    return statistics.median(times)


if __name__ == "__main__":
    main()
