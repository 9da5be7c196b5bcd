"""Checks whether the server on this machine translates: `python -m translane_server.healthcheck`.

The program is for container engines and scripts. An orchestrator that speaks gRPC calls `grpc.health.v1.Health` itself.
The program finds the server by the server's variables. It asks at TRANSLANE_HEALTH_PORT, if that is set, without TLS.
Otherwise it asks at TRANSLANE_PORT, and over TLS if TRANSLANE_TLS_CERT is set. It takes whatever certificate the server
has, because nobody is between the two ends of one machine. It has no certificate of its own, so a server that wants
certificates of its callers needs a health port.
"""

from __future__ import annotations

import os
import socket
import ssl
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_ANY_ADDRESS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "::1"}  # noqa: S104 nothing listens there
_TIMEOUT = 5.0  # seconds
_PREFIX = "TRANSLANE_"

# A network proxy cannot reach a server on this machine.
_OPTIONS = (("grpc.enable_http_proxy", 0),)


@dataclass(frozen=True)
class Target:
    """Where the server on this machine answers checks: the host, the port, and whether it speaks TLS there."""

    host: str
    port: str
    tls: bool = False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class NoTargetError(Exception):
    """The variables do not tell how the server can be asked. The message says what is missing."""


def target(environ: Mapping[str, str]) -> Target:
    """Where the server on this machine answers checks.

    Raises:
        NoTargetError: nothing can ask the server without a certificate of its own.
    """
    host = environ.get(f"{_PREFIX}HOST", "127.0.0.1")
    host = _ANY_ADDRESS.get(host, host).strip("[]")
    if port := environ.get(f"{_PREFIX}HEALTH_PORT"):
        return Target(host, port)
    if environ.get(f"{_PREFIX}TLS_CLIENT_CA"):
        raise NoTargetError(f"the server wants certificates of its callers; set {_PREFIX}HEALTH_PORT for this check")
    return Target(host, environ.get(f"{_PREFIX}PORT", "50051"), tls=bool(environ.get(f"{_PREFIX}TLS_CERT")))


def problem(asked: Target, timeout: float = _TIMEOUT) -> str | None:
    """The reason why the server at `asked` does not translate; None if it does. `timeout` is in seconds."""
    try:
        channel = _channel(asked, timeout)
    except (OSError, ValueError) as error:
        return f"TLS: {error}"
    with channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        try:
            answer = check(health_pb2.HealthCheckRequest(), timeout=timeout)
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"
    if answer.status == health_pb2.HealthCheckResponse.SERVING:
        return None
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


def _channel(asked: Target, timeout: float) -> grpc.Channel:
    """Return a channel to the server.

    Raises:
        OSError: there is no server, or no TLS.
        ValueError: the certificate of the server has no name.
    """
    if not asked.tls:
        return grpc.insecure_channel(str(asked), options=_OPTIONS)
    anything = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anything.check_hostname = False
    anything.verify_mode = ssl.CERT_NONE
    certificate = ssl.DER_cert_to_PEM_cert(_shown(asked, anything, timeout)[0])
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    trusting.load_verify_locations(cadata=certificate)
    _, known = _shown(asked, trusting, timeout)
    # The certificate has the server's name as callers know it, which is not the one of this machine.
    names = [str(name).replace("*", "any") for _, name in known.get("subjectAltName", ())]
    if not names:
        raise ValueError("the certificate of the server has no name")
    return grpc.secure_channel(
        str(asked),
        grpc.ssl_channel_credentials(certificate.encode()),
        options=(*_OPTIONS, ("grpc.ssl_target_name_override", names[0])),
    )


def _shown(asked: Target, context: ssl.SSLContext, timeout: float) -> tuple[bytes, dict[str, Any]]:
    """Return the certificate that the server shows, and what it says if `context` verifies it."""
    plain = socket.create_connection((asked.host, int(asked.port)), timeout)
    with context.wrap_socket(plain) as connection:
        return connection.getpeercert(binary_form=True) or b"", connection.getpeercert() or {}


def main() -> int:
    """Return the exit code: 0 if the server translates; otherwise 1, with the reason on standard error."""
    try:
        asked = target(os.environ)
    except NoTargetError as error:
        print(error, file=sys.stderr)
        return 1
    if reason := problem(asked):
        print(f"{asked}: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
