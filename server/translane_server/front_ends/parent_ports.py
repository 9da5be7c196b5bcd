"""The ports of the parent, of metrics, health and ModelService; and the ports that it keeps for the front ends."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Sequence

from translane_server.access.guard import certificates_of
from translane_server.file_changes import INTERVAL, follow
from translane_server.front_ends.admin import ModelServiceOfAll
from translane_server.front_ends.keeper import Keeper
from translane_server.front_ends.metrics import Collected, FrontEndCollector, ParentMetrics
from translane_server.front_ends.reserved_port import ReservedPort
from translane_server.listening import ADMIN_HOST, Ports, address_of, listening_on
from translane_server.observation.metrics_server import MetricsServer
from translane_server.rpc.health import HealthService
from translane_server.rpc.health_port import HealthPort
from translane_server.rpc.model_service import AdminPort
from translane_server.settings import ServerSettings


class ParentPorts:
    """The ports, all on one event loop.

    Args:
        settings: settings of the server.
        metrics: the parent's own metrics.
        health: answers health checks.
        front_ends: the front ends; the list may grow.
    """

    def __init__(
        self, settings: ServerSettings, metrics: ParentMetrics, health: HealthService, front_ends: Sequence[Keeper]
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._health = health
        self._front_ends = front_ends
        self._reserved: list[ReservedPort] = []
        self._metrics_server: MetricsServer | None = None
        self._health_port: HealthPort | None = None
        self._admin: AdminPort | None = None
        self._following: asyncio.Task[None] | None = None

    async def open(self, ask: Callable[[], Coroutine[None, None, Collected]]) -> Ports:
        """Keep the ports of the front ends, and open those of the parent.

        Args:
            ask: asks all front ends for their metrics.

        Raises:
            StartupError: the server cannot listen on a port.
        """
        settings = self._settings
        grpc = self._reserve(settings.port)
        http = None if settings.http_port is None else self._reserve(settings.http_port)
        context = self._metrics_tls()
        collector = FrontEndCollector(self._metrics, ask, asyncio.get_running_loop())
        with listening_on(settings.host, settings.metrics_port):
            self._metrics_server = MetricsServer(collector.registry, settings.host, settings.metrics_port, context)
        if settings.admin_port is not None:
            service = ModelServiceOfAll(self._front_ends)
            with listening_on(ADMIN_HOST, settings.admin_port):
                self._admin = AdminPort(
                    service, self._metrics.of_calls, settings.admin_port, reflects=settings.reflection
                )
            await self._admin.start()
        if settings.health_port is not None:
            with listening_on(settings.host, settings.health_port):
                address = address_of(settings.host, settings.health_port)
                self._health_port = HealthPort(self._health, self._metrics.of_calls, address)
            await self._health_port.start()
        return Ports(
            grpc,
            self._metrics_server.port,
            http=http,
            health=self._health_port.port if self._health_port else None,
            admin=self._admin.port if self._admin else None,
        )

    async def drain(self) -> None:
        """Change no model any more."""
        if self._admin:
            await self._admin.stop()

    async def close(self) -> None:
        """Close all ports."""
        if self._following:
            self._following.cancel()
        if self._health_port:
            await self._health_port.stop()
        if self._metrics_server:
            await asyncio.to_thread(self._metrics_server.stop)
        for port in self._reserved:
            port.close()

    def _metrics_tls(self) -> ssl.SSLContext | None:
        """Return the certificate of the metrics port, which follows its files; None without TLS."""
        settings = self._settings
        certificates = certificates_of(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
        if not (certificates and settings.metrics_tls):
            return None
        self._following = asyncio.create_task(follow([certificates], INTERVAL))
        return certificates.ssl_context()

    def _reserve(self, port: int) -> int:
        with listening_on(self._settings.host, port):
            self._reserved.append(ReservedPort(self._settings.host, port))
        return self._reserved[-1].number
