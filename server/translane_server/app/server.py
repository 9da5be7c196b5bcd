"""The server: it runs the gRPC port, the metrics port, the port of ModelService and the models."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from translane.v1.translation_pb2_grpc import add_TranslationServiceServicer_to_server
from translane_server.access.authenticator import Guard, what_is_missing
from translane_server.access.certificates import Certificates
from translane_server.api.grpc_port import GrpcPort, enable_reflection, grpc_port
from translane_server.api.health import HealthPort, HealthService
from translane_server.api.model_service import AdminPort, ModelService
from translane_server.api.service import SERVICE_NAME, TranslationService
from translane_server.app.ports import (
    OperatorPorts,
    Ports,
    address_of,
    connection_limit,
    listening_on,
    log_addresses,
)
from translane_server.http.server import HttpServer
from translane_server.models.registry import Registry
from translane_server.observation.metrics import Metrics
from translane_server.observation.tracing import Tracer
from translane_server.settings.server_settings import ServerSettings

if TYPE_CHECKING:
    from translane_server.http.port import HttpPort

_log = logging.getLogger(__name__)

# Time to send the answers that are ready, and the last health states [seconds].
_CLOSING_TIME = 0.5
# Time in which new calls are answered with UNAVAILABLE after the last translation [seconds]. Calls that arrive when the
# port closes get CANCELLED from gRPC, without a reason.
_LAST_CALLS_TIME = 0.2

# The name under which the health service says that the server runs, whether or not its models translate.
ALIVE = "alive"

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Server:
    """Listens after `start`, translates after `open`, and ends with `stop`. All calls come from one event loop.

    Args:
        settings: settings of the server.
        models: the models to serve; they are not loaded.
        metrics: the metrics of the server.
        tracer: begins the spans of calls; None if calls are not traced.
        guard: the certificates and keys; by default those of the settings.

    Attributes:
        guard: the certificates and keys of the server.

    Raises:
        StartupError: a certificate or the file of keys is wrong.
    """

    def __init__(
        self,
        settings: ServerSettings,
        models: Registry,
        metrics: Metrics,
        tracer: Tracer | None = None,
        *,
        guard: Guard | None = None,
    ) -> None:
        self._settings = settings
        self.models = models
        self.metrics = metrics
        self._tracer = tracer
        self.guard = guard or Guard(settings, metrics)
        self._service = TranslationService(models, settings.max_request_texts, log_texts=settings.log_texts)
        self._health = HealthService()
        self._following: asyncio.Task[None] | None = None
        self._operator_ports = OperatorPorts(
            settings,
            metrics,
            self._health,
            ModelService(models),
            self.guard.certificates if settings.metrics_tls else None,
            tracer,
        )
        self._grpc: grpc.aio.Server | None = None
        self._http: HttpPort | None = None
        self.stopped = False
        self.port = 0
        self.metrics_port = 0
        self.http_port = 0

    async def start(self) -> None:
        """Listen on all ports. Translations are refused until `open`.

        Raises:
            StartupError: the server cannot listen on a port.
        """
        settings = self._settings
        self._tell_health()
        self.models.changed = self._tell_health
        connections = connection_limit(settings.max_connections)
        self._http = _http_port(settings, self.metrics, connections, self.guard.certificates)
        port = self._open_grpc(connections)
        await self._operator_ports.open()
        self._following = asyncio.create_task(self.guard.follow())
        await port.server.start()
        if self._http:
            await self._http.start(port.answering, self._service, self.models, self._health)
        opened = self._operator_ports
        self.metrics_port = _number(opened.metrics_port) or 0
        http, health, admin = map(_number, (self._http, opened.health_port, opened.admin_port))
        log_addresses(settings, Ports(self.port, self.metrics_port, http, health, admin))
        if missing := what_is_missing(settings):
            _log.warning("listening on %s %s", settings.host, missing)

    def _open_grpc(self, connections: int) -> GrpcPort:
        """Open the port of translations."""
        settings, certificates = self._settings, self.guard.certificates
        port = grpc_port(
            settings,
            self.metrics,
            connections,
            tracer=self._tracer,
            keys=self.guard.keys,
        )
        add_TranslationServiceServicer_to_server(self._service, port)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, port)
        if settings.reflection:
            enable_reflection((SERVICE_NAME, health.SERVICE_NAME), port)
        self._grpc = server = port.server
        if self._http:
            self.http_port = self._http.port
        address = address_of(settings.host, settings.port)
        with listening_on(settings.host, settings.port):
            if certificates:
                self.port = server.add_secure_port(address, certificates.grpc_credentials())
            else:
                self.port = server.add_insecure_port(address)
        return port

    @property
    def can_translate(self) -> bool:
        """Whether any model translates."""
        return self.models.can_translate

    def request_reload(self) -> None:
        """Reload all models soon."""
        self.models.request_reload()

    async def open(self) -> None:
        """Load all models. Each one translates as soon as it is loaded. `stop` ends the models.

        Raises:
            StartupError: a model cannot be loaded.
        """
        await self.models.start()
        self._tell_health()

    def leave(self) -> None:
        """Say that the server is not ready any more. It still translates, until `stop`."""
        self._health.close()

    async def stop(self, grace: float, hurry: asyncio.Event | None = None) -> bool:
        """Refuse new translations, finish the accepted ones, and close.

        After `grace` seconds, or as soon as `hurry` is set, the unfinished translations are answered with UNAVAILABLE.

        Returns:
            Whether all accepted translations were finished.
        """
        self.stopped = True
        self._service.close()
        self.models.close()
        if self._http:
            self._http.drain()
        await self._operator_ports.drain()
        self._health.close()
        if self._following:
            self._following.cancel()
        drained = await _first(self._service.idle(), hurry, grace)
        if drained and self.models.can_translate:
            await _first(asyncio.sleep(_LAST_CALLS_TIME), hurry, _LAST_CALLS_TIME)
        await self.models.stop()
        if self._grpc:
            if not drained:  # the dispatchers have failed the unfinished requests, whose answers are written now
                await _first(self._service.idle(), None, _CLOSING_TIME)
            closing_time = _CLOSING_TIME if not (hurry and hurry.is_set()) else 0
            if self._http:
                await self._http.stop(closing_time)
            await self._grpc.stop(closing_time)
        await self._operator_ports.close()
        return drained

    def _tell_health(self) -> None:
        """Set the health of the server, and of each model: the service's name, a slash, and the model's name.

        A server that is not ready is still alive: to start it anew would help no model.
        """
        whole = _SERVING if self.models.is_ready else _NOT_SERVING
        states = {"": whole, SERVICE_NAME: whole, ALIVE: _SERVING}
        for name, model in self.models.models.items():
            states[f"{SERVICE_NAME}/{name}"] = _SERVING if model.can_translate else _NOT_SERVING
        self._health.replace(states)


def _number(port: HttpServer | AdminPort | HealthPort | None) -> int | None:
    return port.port if port else None


async def _first(wanted: Coroutine[Any, Any, None], hurry: asyncio.Event | None, seconds: float) -> bool:
    """Whether `wanted` ends before `hurry` is set, and within `seconds`."""
    done = asyncio.ensure_future(wanted)
    others = [asyncio.ensure_future(hurry.wait())] if hurry else []
    await asyncio.wait([done, *others], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in (done, *others):
        task.cancel()
    return done.done() and not done.cancelled()


def _http_port(
    settings: ServerSettings, metrics: Metrics, connections: int, certificates: Certificates | None
) -> HttpPort | None:
    """Return the HTTP port; None if there is none.

    Raises:
        StartupError: the server cannot listen on the port.
    """
    if settings.http_port is None:
        return None
    from translane_server.http.port import HttpPort  # late: other servers do without its packages' memory

    with listening_on(settings.host, settings.http_port):
        return HttpPort(settings, metrics, connections, certificates)
