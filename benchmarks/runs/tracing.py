"""What traces cost a call: servers without traces, with 1% of the calls recorded, and with all of them.

    python -m benchmarks.runs.tracing models/zh-en
    python -m benchmarks.runs.tracing models/zh-en --before ../another-checkout

All servers run at the same time, and a client calls them in turns through their sockets: some calls of one, some of the
next, and so on. The order changes with every round. A receiver of OTLP takes the spans, and drops them. *Translate* has
one short sentence and makes 8 spans, *ListModels* decodes nothing and makes 1. The processor time is that of the
process that takes requests, and of its replicas, from a method's first round until the last spans are sent.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from benchmarks.engines.server_process import ServerProcess
from benchmarks.machine import Usage, processor, version_of
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc

TEXT = "我有一只猫。"
SENDING_TIME = 1.0  # until the last spans are sent [seconds]
PACKAGES = ("protos", "server")  # folders of a checkout whose packages the server imports
METHODS: dict[str, Callable[[Any], Any]] = {
    "Translate": lambda stub: stub.Translate(pb.TranslateRequest(texts=[TEXT])),
    "ListModels": lambda stub: stub.ListModels(pb.ListModelsRequest()),
}


@dataclass
class Runs:
    """The median of a call in each round, and the processor time of a call, of all rounds. All are in seconds."""

    calls: list[float] = field(default_factory=list)
    cpu: float = 0.0


class Setting:
    """A server, and a client that calls it."""

    def __init__(self, name: str, server: ServerProcess) -> None:
        self.name = name
        self._server = server
        self._channel = grpc.insecure_channel(server.address)
        self._stub = translation_pb2_grpc.TranslationServiceStub(self._channel)  # type: ignore[no-untyped-call]  # generated
        self.runs = {method: Runs() for method in METHODS}

    def measure(self, method: str, calls: int) -> None:
        call, stub = METHODS[method], self._stub
        seconds = []
        for _ in range(calls):
            started = time.perf_counter()
            call(stub)
            seconds.append(time.perf_counter() - started)
        self.runs[method].calls.append(statistics.median(seconds))

    def cpu_seconds(self) -> float:
        return self._server.cpu_seconds()

    def close(self) -> None:
        self._channel.close()


@contextmanager
def receiver() -> Iterator[str]:
    """A receiver of spans that drops them; its address."""
    export = grpc.unary_unary_rpc_method_handler(lambda _request, _context: b"")
    service = "opentelemetry.proto.collector.trace.v1.TraceService"
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": export}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def environments(endpoint: str, before: Path | None) -> dict[str, dict[str, str]]:
    """The variables of each server, by its name in the table."""
    on = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_BSP_SCHEDULE_DELAY": "200",  # milliseconds
    }
    earlier = {"PYTHONPATH": os.pathsep.join(str(before.resolve() / each) for each in PACKAGES)} if before else None
    return {
        **({"before": earlier} if earlier else {}),
        "off": {},
        "1% recorded": on | {"OTEL_TRACES_SAMPLER_ARG": "0.01"},
        "all recorded": on | {"OTEL_TRACES_SAMPLER_ARG": "1"},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="compare with another checkout of Translane, too")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--calls", type=int, default=100, help="of each method, in a round, to a server")
    arguments = parser.parse_args()
    flags = ["-m", "translane", "serve", str(arguments.bundle.resolve()), "--metrics-port", "0"]
    flags += ["--replicas", "1", "--threads", "1"]
    with ExitStack() as stack:
        endpoint = stack.enter_context(receiver())
        settings = [
            Setting(name, stack.enter_context(ServerProcess(flags, environment)))
            for name, environment in environments(endpoint, arguments.before).items()
        ]
        usage = Usage()
        for method in METHODS:
            measure(settings, method, arguments.rounds, arguments.calls)
        others = usage.so_far()["others"]
        for setting in settings:
            setting.close()
    print(
        f"{arguments.bundle.name}, onnxruntime {version_of('onnxruntime')}, {processor()}; {arguments.rounds} rounds of"
        f" {arguments.calls} calls; other programs took {others:.0%} of the processors\n"
    )
    print(table(settings))


def measure(settings: list[Setting], method: str, rounds: int, calls: int) -> None:
    """Call all servers in turns, and note what it takes."""
    before = [setting.cpu_seconds() for setting in settings]
    for number in range(rounds):
        turn = number % len(settings)
        for setting in (*settings[turn:], *settings[:turn]):
            setting.measure(method, calls)
    time.sleep(SENDING_TIME)
    for setting, cpu in zip(settings, before, strict=True):
        setting.runs[method].cpu = (setting.cpu_seconds() - cpu) / (rounds * calls)


def table(settings: list[Setting]) -> str:
    """Medians over the rounds, medians of the differences to the first setting, round by round, and processor time."""
    lines = [
        f"| call | traces | ms | − {settings[0].name}, µs | processor µs | − {settings[0].name} |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for method in METHODS:
        first = settings[0].runs[method]
        for setting in settings:
            runs = setting.runs[method]
            slower = statistics.median(now - then for now, then in zip(runs.calls, first.calls, strict=True)) * 1e6
            lines.append(
                f"| {method} | {setting.name} | {statistics.median(runs.calls) * 1e3:.2f} | {slower:+.0f} |"
                f" {runs.cpu * 1e6:.0f} | {(runs.cpu - first.cpu) * 1e6:+.0f} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
