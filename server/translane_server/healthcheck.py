"""Checks whether the server on this machine translates: `python -m translane_server.healthcheck`.

The program is for container engines and scripts. An orchestrator that speaks gRPC calls `grpc.health.v1.Health` itself.
The program finds the server by the server's variables TRANSLANE_HOST and TRANSLANE_PORT.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_ANY_ADDRESS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "::1"}  # noqa: S104 nothing listens there
_TIMEOUT = 5.0  # seconds


def target(environ: Mapping[str, str]) -> str:
    """The address of the server on this machine: HOST:PORT."""
    host = environ.get("TRANSLANE_HOST", "127.0.0.1")
    host = _ANY_ADDRESS.get(host, host)
    return f"{f'[{host}]' if ':' in host else host}:{environ.get('TRANSLANE_PORT', '50051')}"


def problem(address: str, timeout: float = _TIMEOUT) -> str | None:
    """The reason why the server at `address` does not translate; None if it does. `timeout` is in seconds."""
    # A network proxy cannot reach a server on this machine.
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        try:
            answer = check(health_pb2.HealthCheckRequest(), timeout=timeout)
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"
    if answer.status == health_pb2.HealthCheckResponse.SERVING:
        return None
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


def main() -> int:
    """Return the exit code: 0 if the server translates; otherwise 1, with the reason on standard error."""
    address = target(os.environ)
    if reason := problem(address):
        print(f"{address}: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
