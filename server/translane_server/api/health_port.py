"""A port for health checks alone: those of orchestrators that speak gRPC, but neither TLS nor keys."""

from __future__ import annotations

import grpc
from grpc_health.v1 import health_pb2_grpc

from translane_server.api.health import HealthService
from translane_server.api.interceptors import CallInterceptor
from translane_server.api.open_calls import CallLimits
from translane_server.observation.metrics import Metrics

_CALLS, _STREAMS, _CONNECTIONS = 64, 16, 64
_MESSAGE_BYTES = 4096
_HANDSHAKE_TIME = 10  # [seconds]
_CLOSING_TIME = 0.5  # for the last health states [seconds]


class HealthPort:
    """The port of health checks. It shows whether models translate, and nothing else.

    Args:
        health: answers the checks.
        metrics: counts the calls.
        address: HOST:PORT; port 0 takes a free one.

    Raises:
        RuntimeError: the server cannot listen on the port.
    """

    def __init__(self, health: HealthService, metrics: Metrics, address: str) -> None:
        options = [
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", _MESSAGE_BYTES),
            ("grpc.max_concurrent_streams", _STREAMS),
            ("grpc.max_allowed_incoming_connections", _CONNECTIONS),
            ("grpc.server_handshake_timeout_ms", _HANDSHAKE_TIME * 1000),
        ]
        limits = CallLimits(calls=_CALLS, message_bytes=_MESSAGE_BYTES, bytes_in_flight=_CALLS * _MESSAGE_BYTES)
        self._server = grpc.aio.server(interceptors=[CallInterceptor(metrics, limits)], options=options)
        health_pb2_grpc.add_HealthServicer_to_server(health, self._server)
        self.port = self._server.add_insecure_port(address)

    async def start(self) -> None:
        """Answer checks."""
        await self._server.start()

    async def stop(self) -> None:
        """Close the port."""
        await self._server.stop(_CLOSING_TIME)
