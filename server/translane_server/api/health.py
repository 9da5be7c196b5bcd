"""The health service (https://github.com/grpc/grpc/blob/master/doc/health-checking.md).

The service of grpcio-health-checking holds a lock while it writes to a watcher. A watcher who does not read would so
keep all others from news, and the server from its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import grpc
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1.health_pb2_grpc import HealthServicer

Context = grpc.aio.ServicerContext[Any, Any]


class HealthService(HealthServicer):  # type: ignore[misc]  # the library has no types
    """Says whether services serve, now (`Check`) and whenever this changes (`Watch`).

    A watcher who reads slowly misses states in between, and gets the last one.
    """

    def __init__(self) -> None:
        self._states: dict[str, pb.HealthCheckResponse.ServingStatus] = {}
        self._watchers: dict[
            str, set[asyncio.Event]
        ] = {}  # by service; an event is set when the state may have changed
        self._closed = False

    def set(self, service: str, state: pb.HealthCheckResponse.ServingStatus) -> None:
        """Set the state of a service. After `close` this has no effect."""
        if not self._closed:
            self._set(service, state)

    def replace(self, states: Mapping[str, pb.HealthCheckResponse.ServingStatus]) -> None:
        """Set the states of all services. A service that had a state before, and has none now, becomes unknown."""
        for service in self._states.keys() - states.keys():
            self.set(service, pb.HealthCheckResponse.SERVICE_UNKNOWN)
        for service, state in states.items():
            self.set(service, state)

    def close(self) -> None:
        """Say of all services that they do not serve, from now on."""
        self._closed = True
        for service in self._states:
            self._set(service, pb.HealthCheckResponse.NOT_SERVING)

    async def Check(self, request: pb.HealthCheckRequest, context: Context) -> pb.HealthCheckResponse:  # noqa: N802
        state = self._states.get(request.service)
        if state is None:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return pb.HealthCheckResponse(status=state)

    async def Watch(self, request: pb.HealthCheckRequest, context: Context) -> None:  # noqa: N802
        service = request.service
        changed = asyncio.Event()
        self._watchers.setdefault(service, set()).add(changed)
        told: pb.HealthCheckResponse.ServingStatus | None = None
        try:
            while True:
                changed.clear()
                state = self._states.get(service, pb.HealthCheckResponse.SERVICE_UNKNOWN)
                if state != told:
                    told = state
                    await context.write(pb.HealthCheckResponse(status=state))
                else:
                    await changed.wait()
        finally:
            watchers = self._watchers[service]
            watchers.discard(changed)
            if not watchers:
                del self._watchers[service]

    def _set(self, service: str, state: pb.HealthCheckResponse.ServingStatus) -> None:
        self._states[service] = state
        for changed in self._watchers.get(service, ()):
            changed.set()
