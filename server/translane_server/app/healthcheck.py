"""Checks whether the server on this machine translates: `python -m translane_server.app.healthcheck`.

The program is for container engines and scripts. An orchestrator that speaks gRPC calls `grpc.health.v1.Health` itself.
The program finds the server by its variables TRANSLANE_HOST and TRANSLANE_HEALTH_PORT, and asks without TLS.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_ANY_ADDRESS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 nothing listens there
_TIMEOUT = 5.0  # seconds


def problem(environ: Mapping[str, str], timeout: float = _TIMEOUT) -> str | None:
    """The reason why the server of the variables does not translate; None if it does. `timeout` is in seconds."""
    port = environ.get("TRANSLANE_HEALTH_PORT")
    if not port:
        return "TRANSLANE_HEALTH_PORT is not set: the server has no port for this check"
    host = environ.get("TRANSLANE_HOST", "").strip("[]")
    host = _ANY_ADDRESS.get(host, host)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    # A network proxy cannot reach a server on this machine.
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            check = health_pb2_grpc.HealthStub(channel).Check
            state = check(health_pb2.HealthCheckRequest(), timeout=timeout).status
        except grpc.RpcError as error:
            return f"{address}: {error.code().name}: {error.details()}"
    if state == health_pb2.HealthCheckResponse.SERVING:
        return None
    return f"{address}: {health_pb2.HealthCheckResponse.ServingStatus.Name(state)}"


def main() -> int:
    """Return the exit code: 0 if the server translates; otherwise 1, with the reason on standard error."""
    if reason := problem(os.environ):
        print(reason, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
