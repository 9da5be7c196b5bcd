"""What a call over HTTP costs beside one over gRPC, and whether an HTTP port that nobody uses slows gRPC down.

    python -m benchmarks.runs.http
    python -m benchmarks.runs.http --write    # into docs/http.md

A server without the HTTP port and one with it take turns: see `benchmarks.measuring.turns`. The table has medians of
the rounds' medians, and the processor time of the server's process for a call, which other programs change little.
"""

from __future__ import annotations

import argparse
import http.client
from contextlib import ExitStack

import grpc

from benchmarks.engines.server_process import ServerProcess
from benchmarks.measuring.turns import CALLS, METHODS, ROUNDS, Way, over_grpc, over_http, table, take_turns
from benchmarks.places import DEMO, ROOT
from benchmarks.report.marked_part import write_part
from translane_plan.measuring.server import free_port

PAGE = ROOT / "docs" / "http.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--calls", type=int, default=CALLS, help="in each round")
    parser.add_argument("--write", action="store_true", help="write the table into docs/http.md")
    arguments = parser.parse_args()
    command = ["-m", "translane", "serve", str(DEMO), "--metrics-port", "0", "--replicas", "1"]
    command += ["--threads", "1", "--device", "cpu"]
    http_port = free_port()
    with ExitStack() as stack:
        without = stack.enter_context(ServerProcess(command))
        beside = stack.enter_context(ServerProcess([*command, "--http-port", str(http_port)]))
        ways = {method: ways_to_call(method, without, beside, http_port) for method in METHODS}
        take_turns(ways, arguments.rounds, arguments.calls)
    lines = table(ways, ["server's processor"])
    print(lines)
    if arguments.write:
        write_part(PAGE, "costs of HTTP", "python -m benchmarks.runs.http --write", lines)


def ways_to_call(method: str, without: ServerProcess, beside: ServerProcess, http_port: int) -> list[Way]:
    connection = http.client.HTTPConnection("127.0.0.1", http_port)
    plain, idle = grpc.insecure_channel(without.address), grpc.insecure_channel(beside.address)
    return [
        Way("gRPC, no HTTP port", over_grpc(plain, method), [without.pid]),
        Way("gRPC, beside an idle HTTP port", over_grpc(idle, method), [beside.pid]),
        Way("HTTP, JSON", over_http(connection, method), [beside.pid]),
    ]


if __name__ == "__main__":
    main()
