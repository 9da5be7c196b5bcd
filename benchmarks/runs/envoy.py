"""What a call through Envoy costs beside one that goes to the server itself.

    python -m benchmarks.runs.envoy
    python -m benchmarks.runs.envoy --write    # into docs/envoy.md

Envoy runs with the files of deploy/envoy, so callers speak TLS with it, and it speaks plain text with the server. The
ways take turns: see `benchmarks.measuring.turns`. The table has medians of the rounds' medians, and the processor time
of Envoy and of the server's process for a call, which other programs change little.
"""

from __future__ import annotations

import argparse
import http.client
import ssl
import tempfile
from contextlib import ExitStack
from pathlib import Path

import grpc

from benchmarks.engines.server_process import ServerProcess, translane
from benchmarks.measuring.turns import CALLS, METHODS, ROUNDS, Way, over_grpc, over_http, table, take_turns
from benchmarks.places import DEMO, ROOT
from benchmarks.report.marked_part import write_part
from helpers.envoy import NO_LIMIT, Envoy, running_envoy

PAGE = ROOT / "docs" / "envoy.md"


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
        ways = {method: ways_to_call(method, server, envoy) for method in METHODS}
        take_turns(ways, arguments.rounds, arguments.calls)
    lines = table(ways, ["Envoy", "server"])
    print(lines)
    if arguments.write:
        write_part(PAGE, "costs of Envoy", "python -m benchmarks.runs.envoy --write", lines)


def ways_to_call(method: str, server: ServerProcess, envoy: Envoy) -> list[Way]:
    processes = (envoy.process.pid, server.pid)
    plain = grpc.insecure_channel(server.address)
    through = grpc.secure_channel(envoy.address, grpc.ssl_channel_credentials(envoy.authority.pem))
    context = ssl.create_default_context(cafile=str(envoy.authority.file))
    connection = http.client.HTTPSConnection("127.0.0.1", envoy.port, context=context)
    return [
        Way("gRPC to the server", over_grpc(plain, method), processes),
        Way("gRPC through Envoy", over_grpc(through, method), processes),
        Way("JSON through Envoy", over_http(connection, method), processes),
    ]


if __name__ == "__main__":
    main()
