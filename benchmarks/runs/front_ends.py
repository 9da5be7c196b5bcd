"""What a request costs the process that takes it, and what several front ends bring: measured here, modelled beyond.

    python -m benchmarks.runs.front_ends
    python -m benchmarks.runs.front_ends --write    # into docs/front-ends.md

*Parts*: one caller sends one call after the other, or 64 at once. The servers take turns: a bare gRPC server that
returns its message, and servers of the demo model. *Rates*: processes of callers keep calls open on many connections,
on a server of one front end and on one of two, which have the same replicas and take turns. *Model*: a simulation with
the costs that the rates have shown; see `benchmarks.measuring.front_end_model`.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from benchmarks.engines.server_process import ServerProcess
from benchmarks.measuring.front_end_load import Callers, Loaded, processes_of
from benchmarks.places import DEMO, ROOT, result
from benchmarks.report.front_end_tables import modelled_tables, parts_table, rates_table
from benchmarks.report.marked_part import write_part
from translane.v1 import translation_pb2 as pb
from translane_plan.measuring.processes import cpu_seconds

PAGE = ROOT / "docs" / "front-ends.md"
TEXT = "你好。"
AT_ONCE, SERIAL_CALLS, BURSTS = 64, 200, 6  # calls of a round
ROUNDS, SECONDS = 9, 3.0
CALLERS = (2, 8, 8)  # processes, connections of each, calls that are open on each connection
FRONT_ENDS = (1, 2)
REPLICAS = 2
# No limit gets in the way of the calls that are open at once.
FLAGS = (
    *("--metrics-port", "0", "--threads", "1", "--device", "cpu"),
    *("--max-calls", "4096", "--sentences-waiting", "4096", "--caller-share", "1"),
)
CACHE = ["--cache-bytes", str(1 << 24)]
TRANSLATE = "/translane.v1.TranslationService/Translate"
LIST_MODELS = "/translane.v1.TranslationService/ListModels"


@dataclass
class Part:
    """A kind of call, and what it costs: medians of rounds, serial and at once [seconds].

    Attributes:
        front: processor time of the process that takes the calls.
        replicas: processor time of those that decode.
    """

    name: str
    method: Callable[[bytes], bytes]
    future: Callable[[bytes], Any]
    message: bytes
    processes: tuple[Sequence[int], Sequence[int]]
    front: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    replicas: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))

    def measure(self) -> None:
        """Call one after the other, and then many at once."""
        for place, (run, calls) in enumerate(((self._serial, SERIAL_CALLS), (self._at_once, BURSTS * AT_ONCE))):
            before = [cpu_seconds(each) for each in self.processes]
            run()
            after = [cpu_seconds(each) for each in self.processes]
            for found, then, now in zip((self.front, self.replicas), before, after, strict=True):
                found[place].append((now - then) / calls)

    def _serial(self) -> None:
        for _ in range(SERIAL_CALLS):
            self.method(self.message)

    def _at_once(self) -> None:
        for _ in range(BURSTS):
            for answer in [self.future(self.message) for _ in range(AT_ONCE)]:
                answer.result()

    def medians(self) -> dict[str, list[float]]:
        return {
            "front": [statistics.median(each) for each in self.front],
            "replicas": [statistics.median(each) for each in self.replicas],
        }


class BareServer(ServerProcess):
    """A gRPC server whose only method returns its message."""

    def __init__(self) -> None:
        super().__init__(["-m", "benchmarks.engines.bare_server"])

    def _wait_until_it_answers(self) -> None:
        with grpc.insecure_channel(self.address) as channel:
            grpc.channel_ready_future(channel).result(timeout=30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a round of rates")
    parser.add_argument("--only", choices=("parts", "rates", "model"), help="measure this anew, keep the rest")
    parser.add_argument("--front-ends", type=int, nargs="+", default=FRONT_ENDS)
    parser.add_argument("--write", action="store_true", help="write the tables into docs/front-ends.md")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or not arguments.seconds > 0 or min(arguments.front_ends) < 1:
        parser.error("--rounds and --front-ends must be at least 1, and --seconds more than 0")
    path = result("front-ends")
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if missing := {"parts", "rates"} - found.keys() - {arguments.only} if arguments.only else None:
        parser.error(f"--only takes the rest from {path}, which lacks {' and '.join(sorted(missing))}")
    if arguments.only in (None, "parts"):
        found["parts"] = measure_parts(arguments.rounds)
    if arguments.only in (None, "rates"):
        found["rates"] = measure_rates(arguments.front_ends, arguments.rounds, arguments.seconds)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1), encoding="utf-8")
    tables = {"parts of a request": parts_table(found["parts"]), "rates of front ends": rates_table(found["rates"])}
    if arguments.only in (None, "model"):
        tables["model of front ends"] = modelled_tables(found["parts"], found["rates"], CALLERS)
    for name, lines in tables.items():
        print(f"{lines}\n")
        if arguments.write:
            write_part(PAGE, name, "python -m benchmarks.runs.front_ends --write", lines)


def measure_parts(rounds: int) -> Mapping[str, dict[str, list[float]]]:
    """Measure what kinds of calls cost; the kinds take turns."""
    with ExitStack() as stack:
        bare = stack.enter_context(BareServer())
        plain = stack.enter_context(server(["--replicas", "1"]))
        cached = stack.enter_context(server(["--replicas", "1", *CACHE]))
        request = pb.TranslateRequest(texts=[TEXT]).SerializeToString()
        parts = [
            _part("gRPC alone", bare, "/bare/Echo", request),
            _part("ListModels", plain, LIST_MODELS, b""),
            _part("Translate, from the cache", cached, TRANSLATE, request),
            _part("Translate", plain, TRANSLATE, request),
        ]
        for part in parts:
            part.method(part.message)
        for number in range(rounds):
            for place in range(len(parts)):
                parts[(place + number) % len(parts)].measure()
    return {part.name: part.medians() for part in parts}


def measure_rates(front_ends: Sequence[int], rounds: int, seconds: float) -> Mapping[str, list[dict[str, object]]]:
    """Measure servers with so many front ends each, which take turns: with and without decoding."""
    found: dict[str, list[dict[str, object]]] = {}
    for kind, flags in (("decoded", []), ("from the cache", CACHE)):
        with ExitStack() as stack:
            loaded = []
            for number in front_ends:
                more = ["--front-ends", str(number)] if number > 1 else []
                running = stack.enter_context(server(["--replicas", str(REPLICAS), *flags, *more]))
                loaded.append(Loaded(str(number), running))
            callers = stack.enter_context(Callers(*CALLERS))
            for each in loaded:  # caches are filled, and replicas have run
                callers.call(each.server.address, 1.0)
            for number in range(rounds):
                for place in range(len(loaded)):
                    loaded[(place + number) % len(loaded)].measure(callers, seconds)
            found[kind] = [each.told(loaded[0]) for each in loaded]
    return found


def server(flags: Sequence[str], bundle: Path = DEMO) -> ServerProcess:
    """A server of the demo model that takes as many calls as it gets."""
    return ServerProcess(["-m", "translane", "serve", str(bundle), *FLAGS, *flags])


def _part(name: str, running: ServerProcess, path: str, message: bytes) -> Part:
    channel = grpc.insecure_channel(running.address, [("grpc.use_local_subchannel_pool", 1)])
    method = channel.unary_unary(path, None, None)
    return Part(name, method, method.future, message, processes_of(running))


if __name__ == "__main__":
    main()
