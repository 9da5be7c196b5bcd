"""What a call through Envoy costs beside one that goes to the server itself.

    python -m benchmarks.runs.envoy
    python -m benchmarks.runs.envoy --write    # into docs/envoy.md

Envoy runs with the files of deploy/envoy, so callers speak TLS with it, and it speaks plain text with the server. One
caller sends one call after the other, and the ways take turns. ListModels is next to nothing but a call; Translate is a
short sentence on the demo model. The table has medians of the rounds' medians, and the processor time of Envoy and of
the server's process for a call, which other programs change little.
"""

from __future__ import annotations

import argparse
import http.client
import json
import ssl
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from benchmarks.engines.server_process import ServerProcess, translane
from benchmarks.machine import cpu_seconds
from benchmarks.places import DEMO, ROOT
from benchmarks.report.marked_part import write_part
from helpers.envoy import Envoy, running_envoy
from translane.v1 import translation_pb2 as pb
from translane.v1.translation_pb2_grpc import TranslationServiceStub

PAGE = ROOT / "docs" / "envoy.md"
TEXT = "你好。"
ROUNDS, CALLS = 30, 100
NO_LIMIT = {
    "tokens_per_fill: 1000, ": "tokens_per_fill: 1000000, ",
    "tokens_per_fill: 200, ": "tokens_per_fill: 1000000, ",
}

Call = Callable[[], object]


@dataclass
class Way:
    """A way to call a server, and the medians of each round, of one call each [seconds]."""

    name: str
    call: Call
    processes: Sequence[int]  # Envoy and the server
    waits: list[float] = field(default_factory=list)
    used: list[tuple[float, ...]] = field(default_factory=list)  # processor time of each process

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--calls", type=int, default=CALLS, help="in each round")
    parser.add_argument("--write", action="store_true", help="write the table into docs/envoy.md")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        flags = ["--replicas", "1", "--threads", "1", "--device", "cpu"]
        server = stack.enter_context(translane(DEMO, flags))
        envoy = stack.enter_context(running_envoy(folder, [server.address], changes=NO_LIMIT))
        kinds = {name: ways(name, server, envoy) for name in ("ListModels", "Translate")}
        for number in range(arguments.rounds):
            for listed in kinds.values():
                for place in range(len(listed)):
                    listed[(place + number) % len(listed)].measure(arguments.calls)  # nobody is always first
    lines = table(kinds)
    print(lines)
    if arguments.write:
        write_part(PAGE, "costs of Envoy", "python -m benchmarks.runs.envoy --write", lines)


def ways(name: str, server: ServerProcess, envoy: Envoy) -> list[Way]:
    """The ways to call the method `name`."""
    processes = (envoy.process.pid, server.pid)
    credentials = grpc.ssl_channel_credentials(envoy.authority.pem)
    return [
        Way("gRPC to the server", over_grpc(grpc.insecure_channel(server.address), name), processes),
        Way("gRPC through Envoy", over_grpc(grpc.secure_channel(envoy.address, credentials), name), processes),
        Way("JSON through Envoy", over_http(envoy, name), processes),
    ]


def over_grpc(channel: grpc.Channel, name: str) -> Call:
    stub = TranslationServiceStub(channel)  # type: ignore[no-untyped-call]
    if name == "ListModels":
        return lambda: stub.ListModels(pb.ListModelsRequest())
    return lambda: stub.Translate(pb.TranslateRequest(texts=[TEXT]))


def over_http(envoy: Envoy, name: str) -> Call:
    context = ssl.create_default_context(cafile=str(envoy.authority.file))
    connection = http.client.HTTPSConnection("127.0.0.1", envoy.port, context=context)
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
    """A row for each way. The difference is the median of what each round has more than the same round's first way."""
    lines = [
        "| call | way | median [ms] | to the first way [ms] | Envoy [ms] | server [ms] |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for name, listed in kinds.items():
        for way in listed:
            more = statistics.median(a - b for a, b in zip(way.waits, listed[0].waits, strict=True))
            figures = f"{statistics.median(way.waits) * 1e3:.2f} | {more * 1e3:+.2f}"
            used = " | ".join(f"{statistics.median(of) * 1e3:.2f}" for of in zip(*way.used, strict=True))
            lines.append(f"| {name} | {way.name} | {figures} | {used} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
