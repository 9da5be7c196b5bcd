"""What a call over HTTP costs beside one over gRPC, and whether an HTTP port that nobody uses slows gRPC down.

    python -m benchmarks.runs.http
    python -m benchmarks.runs.http --write    # into docs/http.md

One caller sends one call after the other, to a server without the HTTP port and to one with it, in turns. ListModels is
next to nothing but a call; Translate is a short sentence on the demo model. The table has medians of the rounds'
medians, and the processor time of the server's process for a call, which other programs change little.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack

import grpc

from benchmarks.engines.server_process import ServerProcess, free_port
from benchmarks.machine import cpu_seconds
from benchmarks.places import DEMO, ROOT
from benchmarks.report.marked_part import write_part
from translane.v1 import translation_pb2 as pb
from translane.v1.translation_pb2_grpc import TranslationServiceStub

PAGE = ROOT / "docs" / "http.md"
TEXT = "你好。"
ROUNDS, CALLS = 30, 100

Call = Callable[[], object]


class Way:
    """A way to call a server, and what it took in each round."""

    def __init__(self, name: str, server: ServerProcess, call: Call) -> None:
        self.name = name
        self._server = server
        self._call = call
        self.waits: list[float] = []  # medians of the rounds [seconds]
        self.server: list[float] = []  # processor time of a call, of the server's process [seconds]

    def measure(self, calls: int) -> None:
        """Send `calls` calls, one after the other."""
        waits = []
        before = cpu_seconds([self._server.pid])
        for _ in range(calls):
            start = time.perf_counter()
            self._call()
            waits.append(time.perf_counter() - start)
        self.server.append((cpu_seconds([self._server.pid]) - before) / calls)
        self.waits.append(statistics.median(waits))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--calls", type=int, default=CALLS, help="in each round")
    parser.add_argument("--write", action="store_true", help="write the table into docs/http.md")
    arguments = parser.parse_args()
    command = ["-m", "translane_server", "--model", str(DEMO), "--metrics-port", "0", "--replicas", "1"]
    command += ["--threads", "1", "--device", "cpu"]
    http_port = free_port()
    with ExitStack() as stack:
        without = stack.enter_context(ServerProcess(command))
        beside = stack.enter_context(ServerProcess([*command, "--http-port", str(http_port)]))
        kinds = {name: ways(name, without, beside, http_port) for name in ("ListModels", "Translate")}
        for number in range(arguments.rounds):
            for listed in kinds.values():
                for place in range(len(listed)):
                    listed[(place + number) % len(listed)].measure(arguments.calls)  # nobody is always first
    lines = table(kinds)
    print(lines)
    if arguments.write:
        write_part(PAGE, "costs of HTTP", "python -m benchmarks.runs.http --write", lines)


def ways(name: str, without: ServerProcess, beside: ServerProcess, http_port: int) -> list[Way]:
    """The ways to call the method `name`."""
    return [
        Way("gRPC, no HTTP port", without, over_grpc(without, name)),
        Way("gRPC, beside an idle HTTP port", beside, over_grpc(beside, name)),
        Way("HTTP, JSON", beside, over_http(http_port, name)),
    ]


def over_grpc(server: ServerProcess, name: str) -> Call:
    stub = TranslationServiceStub(grpc.insecure_channel(server.address))  # type: ignore[no-untyped-call]
    if name == "ListModels":
        return lambda: stub.ListModels(pb.ListModelsRequest())
    return lambda: stub.Translate(pb.TranslateRequest(texts=[TEXT]))


def over_http(port: int, name: str) -> Call:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    body = json.dumps({} if name == "ListModels" else {"texts": [TEXT]}).encode()

    def call() -> object:
        path = f"/translane.v1.TranslationService/{name}"
        connection.request("POST", path, body, {"content-type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status == 200, content
        return content

    return call


def table(kinds: dict[str, list[Way]]) -> str:
    lines = [
        "| call | way | median [ms] | to the first way [ms] | server's processor [ms] |",
        "|---|---|---:|---:|---:|",
    ]
    for name, listed in kinds.items():
        for way in listed:
            more = statistics.median(a - b for a, b in zip(way.waits, listed[0].waits, strict=True))
            median, server = statistics.median(way.waits), statistics.median(way.server)
            lines.append(f"| {name} | {way.name} | {median * 1e3:.3f} | {more * 1e3:+.3f} | {server * 1e3:.3f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
