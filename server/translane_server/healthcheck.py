"""Asks a server on this machine whether it translates: `python -m translane_server.healthcheck`.

For container engines and scripts; orchestrators that speak gRPC ask `grpc.health.v1.Health` themselves. Reads the
server's own TRANSLANE_HOST and TRANSLANE_PORT.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_ANY_ADDRESS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "::1"}  # noqa: S104 nothing is opened
_TIMEOUT = 5.0  # seconds


def target(environ: Mapping[str, str]) -> str:
    """Where the server that has these settings answers on this machine."""
    host = environ.get("TRANSLANE_HOST", "127.0.0.1")
    host = _ANY_ADDRESS.get(host, host)
    return f"{f'[{host}]' if ':' in host else host}:{environ.get('TRANSLANE_PORT', '50051')}"


def problem(address: str, timeout: float = _TIMEOUT) -> str | None:
    """Why the server at `address` does not translate, or None where it does."""
    # The server is on this machine: a proxy for the rest of the network does not reach it.
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
    """Exit code 0 where the server translates; else 1, and the reason on standard error."""
    address = target(os.environ)
    if reason := problem(address):
        print(f"{address}: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
