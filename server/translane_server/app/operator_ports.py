"""The ports of whoever operates a server: metrics, ModelService, and health checks alone."""

from __future__ import annotations

from translane.v1.models_pb2_grpc import ModelServiceServicer
from translane_server.access.certificates import Certificates
from translane_server.api.health import HealthPort, HealthService
from translane_server.api.listening import ADMIN_HOST, address_of, listening_on
from translane_server.api.model_service import AdminPort
from translane_server.http.metrics_port import MetricsPort
from translane_server.observation.metrics import Metrics
from translane_server.observation.tracing import Tracer
from translane_server.settings.server_settings import ServerSettings


class OperatorPorts:
    """The ports, as far as the settings have them.

    Args:
        settings: settings of the server.
        metrics: what the port of metrics shows. They count the calls of the other ports, too.
        health: answers health checks.
        models: answers the calls of ModelService.
        certificates: the certificates of the port of metrics; None without TLS.
        tracer: begins the spans of calls; None if calls are not traced.

    Attributes:
        metrics: the port of metrics; 0 before `open`.
        admin: the port of ModelService; None if it is not open.
        health: the port of health checks; None if it is not open.
    """

    def __init__(
        self,
        settings: ServerSettings,
        metrics: Metrics,
        health: HealthService,
        models: ModelServiceServicer,
        *,
        certificates: Certificates | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self.metrics = 0
        self.admin: int | None = None
        self.health: int | None = None
        self._settings = settings
        self._metrics = metrics
        self._health = health
        self._models = models
        self._certificates = certificates
        self._tracer = tracer
        self._metrics_port: MetricsPort | None = None
        self._admin_port: AdminPort | None = None
        self._health_port: HealthPort | None = None

    async def open(self) -> None:
        """Open the ports. `close` closes them, even if one of them has failed to open.

        Raises:
            StartupError: the server cannot listen on a port.
        """
        settings = self._settings
        context = self._certificates.ssl_context() if self._certificates else None
        with listening_on(settings.host, settings.metrics_port):
            self._metrics_port = MetricsPort(self._metrics.registry, settings.host, settings.metrics_port, context)
        await self._metrics_port.start()
        self.metrics = self._metrics_port.port
        if settings.admin_port is not None:
            with listening_on(ADMIN_HOST, settings.admin_port):
                self._admin_port = AdminPort(
                    self._models, self._metrics, settings.admin_port, reflects=settings.reflection, tracer=self._tracer
                )
            await self._admin_port.start()
            self.admin = self._admin_port.port
        if settings.health_port is not None:
            with listening_on(settings.host, settings.health_port):
                address = address_of(settings.host, settings.health_port)
                self._health_port = HealthPort(self._health, self._metrics, address)
            await self._health_port.start()
            self.health = self._health_port.port

    async def drain(self) -> None:
        """Change no model any more."""
        if self._admin_port:
            await self._admin_port.stop()

    async def close(self) -> None:
        """Close the ports of metrics and of health checks, which answer until the server has drained."""
        if self._health_port:
            await self._health_port.stop()
        if self._metrics_port:
            await self._metrics_port.stop()
