"""The server: it runs the models and the ports: of gRPC, of JSON, and of whoever operates it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from typing import Any

from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from translane.v1.translation_pb2_grpc import add_TranslationServiceServicer_to_server
from translane_server.access.authenticator import keys_of, what_is_missing
from translane_server.access.certificates import Certificates, certificates_of
from translane_server.api.answering import Answering
from translane_server.api.grpc_port import GrpcPort, enable_reflection, options_of
from translane_server.api.health import HealthService, health_port
from translane_server.api.model_service import ADMIN_HOST, admin_port
from translane_server.api.service import SERVICE_NAME, TranslationService
from translane_server.app.ports import address_of, connection_limit, listening_on
from translane_server.core.errors import StartupError
from translane_server.core.file_changes import follow
from translane_server.http.metrics_port import MetricsPort
from translane_server.http.server import HttpServer
from translane_server.models.registry import Registry
from translane_server.observation.metrics import Metrics
from translane_server.observation.tracing import Tracer
from translane_server.settings.server_settings import ServerSettings

_log = logging.getLogger(__name__)

# Time to send the answers that are ready, and the last health states [seconds].
_CLOSING_TIME = 0.5
# Time in which new calls are answered with UNAVAILABLE after the last translation [seconds]. Calls that arrive when the
# port closes get CANCELLED from gRPC, without a reason.
_LAST_CALLS_TIME = 0.2

# The port of the page, where no setting names one.
PAGE_PORT = 8080

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Server:
    """Listens after `start`, translates after `open`, and ends with `stop`. All calls come from one event loop.

    The models are not loaded. Ports are 0 before `start`, and that of JSON stays 0 if there is none. Where the settings
    name no port of JSON, one `with_page` takes `PAGE_PORT`, if that is free.

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
        with_page: bool = False,
    ) -> None:
        self._settings = settings
        self.models = models
        self.metrics = metrics
        self._tracer = tracer
        self._with_page = with_page
        self._certificates = certificates_of(settings)
        self.keys = keys_of(settings, metrics)
        self._service = TranslationService(
            models, settings.max_request_texts, settings.max_message_bytes, log_texts=settings.log_texts
        )
        self._health = HealthService()
        self._following: asyncio.Task[None] | None = None
        self._grpc: GrpcPort | None = None
        self._http: HttpServer | None = None
        self._metrics_port: MetricsPort | None = None
        self._admin_port: GrpcPort | None = None
        self._health_port: GrpcPort | None = None
        self.stopped = False
        self.port = 0
        self.metrics_port = 0
        self.http_port = 0

    async def start(self) -> None:
        """Listen on all ports. Translations are refused until a model is loaded.

        Raises:
            StartupError: the server cannot listen on a port.
        """
        settings, metrics, certificates = self._settings, self.metrics, self._certificates
        self._tell_health()
        self.models.changed = self._tell_health
        has_http = settings.http_port is not None or self._with_page
        connections = connection_limit(settings.max_connections, ports=2 if has_http else 1)
        answering = Answering(settings, keys=self.keys, tracer=self._tracer, shown_in=metrics)
        has_authorities = settings.tls_client_ca is not None
        port = self._grpc = GrpcPort(metrics, answering, options_of(settings, connections), certified=has_authorities)
        add_TranslationServiceServicer_to_server(self._service, port)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, port)
        if settings.reflection:
            enable_reflection((SERVICE_NAME, health.SERVICE_NAME), port)
        _listen(port, settings.host, settings.port, certificates)
        self.port = port.port
        await self._open_operators_ports()
        if settings.http_port is not None:
            self._open_http(settings, answering, connections)
        elif self._with_page:  # after the ports that somebody asked for, which may be the same
            try:
                self._open_http(settings.model_copy(update={"http_port": PAGE_PORT}), answering, connections)
            except StartupError as error:
                _log.info("no page to translate on: %s", error)
        if refreshes := [each.refresh for each in (certificates, self.keys) if each]:
            self._following = asyncio.create_task(follow(refreshes))
        await port.server.start()
        if self._http:
            await self._http.start()
        self._log_addresses()

    def _open_http(self, settings: ServerSettings, answering: Answering, connections: int) -> None:
        from translane_server.http.port import http_port  # late: other servers do without its packages' memory

        assert settings.http_port is not None
        with listening_on(settings.host, settings.http_port):
            asked = (answering, self._service, self.models, self._health)
            self._http = http_port(settings, self.metrics, *asked, connections, self._certificates)
        self.http_port = self._http.port

    async def _open_operators_ports(self) -> None:
        """Open the ports of metrics, of ModelService and of health checks, as far as the settings have them."""
        settings, metrics = self._settings, self.metrics
        certificates = self._certificates if settings.metrics_tls else None
        context = certificates.ssl_context() if certificates else None
        with listening_on(settings.metrics_address, settings.metrics_port):
            self._metrics_port = MetricsPort(metrics.registry, settings.metrics_address, settings.metrics_port, context)
        self.metrics_port = self._metrics_port.port
        await self._metrics_port.start()
        if settings.admin_port is not None:
            port = admin_port(self.models, metrics, reflects=settings.reflection, tracer=self._tracer)
            _listen(port, ADMIN_HOST, settings.admin_port)
            self._admin_port = port
            await port.server.start()
        if settings.health_port is not None:
            port = health_port(self._health, metrics)
            _listen(port, settings.host, settings.health_port)
            self._health_port = port
            await port.server.start()

    def _log_addresses(self) -> None:
        """Log where the server listens, and what it lacks there."""
        settings = self._settings
        _log.info("listening on %s", address_of(settings.host, self.port))
        if self._http:
            scheme = "https" if settings.tls_cert else "http"
            _log.info("JSON on %s://%s", scheme, address_of(settings.host, self.http_port))
            _log.info("a page to translate on: %s://%s/", scheme, address_of(settings.host, self.http_port))
        scheme = "https" if settings.metrics_tls else "http"
        _log.info("metrics on %s://%s/metrics", scheme, address_of(settings.metrics_address, self.metrics_port))
        if self._health_port:
            _log.info("health on %s", address_of(settings.host, self._health_port.port))
        if self._admin_port:
            _log.info("models are loaded and unloaded on %s", address_of(ADMIN_HOST, self._admin_port.port))
        if missing := what_is_missing(settings):
            _log.warning("listening on %s %s", settings.host, missing)

    async def open(self, loading: Awaitable[None] | None = None) -> None:
        """Load all models, unless `loading` does. Each one translates as soon as it is loaded. `stop` ends the models.

        Raises:
            StartupError: a model cannot be loaded.
        """
        await (loading or self.models.start())
        self._tell_health()

    def leave(self) -> None:
        """Say that the server is not ready any more. It still translates, until `stop`."""
        self._health.close()

    async def stop(self, grace: float, hurry: asyncio.Event | None = None) -> bool:
        """Refuse new translations, finish the accepted ones, and close.

        After `grace` seconds, or as soon as `hurry` is set, the unfinished translations are answered with UNAVAILABLE.
        Return whether all accepted translations were finished.
        """
        self.stopped = True
        self._service.close()
        self.models.close()
        if self._http:
            self._http.drain()
        if self._admin_port:
            await self._admin_port.server.stop(_CLOSING_TIME)
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
            await self._grpc.server.stop(closing_time)
        if self._health_port:
            await self._health_port.server.stop(_CLOSING_TIME)
        if self._metrics_port:
            await self._metrics_port.stop()
        return drained

    def _tell_health(self) -> None:
        """Set the health of the server, and of each model: the service's name, a slash, and the model's name."""
        whole = _SERVING if self.models.is_ready else _NOT_SERVING
        states = {"": whole, SERVICE_NAME: whole}
        for name, model in self.models.models.items():
            states[f"{SERVICE_NAME}/{name}"] = _SERVING if model.can_translate else _NOT_SERVING
        self._health.replace(states)


def _listen(port: GrpcPort, host: str, number: int, certificates: Certificates | None = None) -> None:
    """Let `port` listen. StartupError: the server cannot listen there."""
    with listening_on(host, number):
        port.listen(address_of(host, number), certificates.grpc_credentials() if certificates else None)


async def _first(wanted: Coroutine[Any, Any, None], hurry: asyncio.Event | None, seconds: float) -> bool:
    """Whether `wanted` ends before `hurry` is set, and within `seconds`."""
    done = asyncio.ensure_future(wanted)
    others = [asyncio.ensure_future(hurry.wait())] if hurry else []
    await asyncio.wait([done, *others], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in (done, *others):
        task.cancel()
    return done.done() and not done.cancelled()
