"""The health service (https://github.com/grpc/grpc/blob/master/doc/health-checking.md).

The service of grpcio-health-checking holds a lock while it writes to a watcher. A watcher who does not read would so
keep all others from news, and the server from its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1.health_pb2_grpc import HealthServicer, add_HealthServicer_to_server

from translane_server.api.answering import Answering
from translane_server.api.call import Call, Write
from translane_server.api.grpc_port import GrpcPort, options_of
from translane_server.core.errors import UnknownServiceError
from translane_server.observation.metrics import Metrics
from translane_server.settings.server_settings import ServerSettings

# The name under which the service says that the server runs, from the start to the end. One that is not ready is still
# alive: to start it anew would help no model, and lose what it still translates.
ALIVE = "alive"

# The limits of the port for health checks alone.
_CALLS, _STREAMS, _CONNECTIONS = 64, 16, 64
_MESSAGE_BYTES = 4096
# Times after which a connection is closed, so that others find room [seconds].
_LONGEST_IDLE, _LONGEST_AGE = 30, 300


class HealthService(HealthServicer):  # type: ignore[misc]  # the library has no types
    """Says whether services serve, now (`Check`) and whenever this changes (`Watch`).

    A watcher who reads slowly misses states in between, and gets the last one.
    """

    def __init__(self) -> None:
        self._states: Mapping[str, pb.HealthCheckResponse.ServingStatus] = {}
        self._watchers: set[asyncio.Event] = set()  # an event is set when a state may have changed
        self._closed = False

    def replace(self, states: Mapping[str, pb.HealthCheckResponse.ServingStatus]) -> None:
        """Set the states of all services but `ALIVE`. One that had a state before, and has none now, becomes unknown.

        After `close` this has no effect.
        """
        if not self._closed:
            self._set({**dict.fromkeys(self._states, pb.HealthCheckResponse.SERVICE_UNKNOWN), **states})

    def close(self) -> None:
        """Say of all services but `ALIVE` that they do not serve, from now on."""
        self._closed = True
        self._set(dict.fromkeys(self._states, pb.HealthCheckResponse.NOT_SERVING))

    def of_server(self) -> str:
        """Return the name of the state of the whole server."""
        return str(pb.HealthCheckResponse.ServingStatus.Name(self._states.get("", pb.HealthCheckResponse.UNKNOWN)))

    async def Check(self, request: pb.HealthCheckRequest, _call: Call) -> pb.HealthCheckResponse:  # noqa: N802
        state = self._states.get(request.service)
        if state in (None, pb.HealthCheckResponse.SERVICE_UNKNOWN):
            raise UnknownServiceError("there is no such service")
        return pb.HealthCheckResponse(status=state)

    async def Watch(self, request: pb.HealthCheckRequest, _call: Call, write: Write) -> None:  # noqa: N802
        changed = asyncio.Event()
        self._watchers.add(changed)
        told: pb.HealthCheckResponse.ServingStatus | None = None
        try:
            while True:
                changed.clear()
                state = self._states.get(request.service, pb.HealthCheckResponse.SERVICE_UNKNOWN)
                if state != told:
                    told = state
                    await write(pb.HealthCheckResponse(status=state))
                else:
                    await changed.wait()
        finally:
            self._watchers.remove(changed)

    def _set(self, states: Mapping[str, pb.HealthCheckResponse.ServingStatus]) -> None:
        self._states = {**states, ALIVE: pb.HealthCheckResponse.SERVING}
        for changed in self._watchers:
            changed.set()


def health_port(health: HealthService, metrics: Metrics) -> GrpcPort:
    """Return a port for health checks alone: those of orchestrators that speak gRPC, but neither TLS nor keys.

    It shows whether models translate, and nothing else.
    """
    limits = ServerSettings.model_construct(
        max_calls=_CALLS,
        max_message_bytes=_MESSAGE_BYTES,
        max_bytes_in_flight=_CALLS * _MESSAGE_BYTES,
        max_streams=_STREAMS,
        max_connection_idle=_LONGEST_IDLE,
        max_connection_age=_LONGEST_AGE,
    )
    port = GrpcPort(metrics, Answering(limits), options_of(limits, _CONNECTIONS))
    add_HealthServicer_to_server(health, port)
    return port
