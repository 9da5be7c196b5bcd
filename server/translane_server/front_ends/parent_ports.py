"""The ports of the parent: those of operators, and those that it keeps for the front ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence

from translane_server.access.certificates import Certificates
from translane_server.access.guard import certificates_of
from translane_server.api.health import HealthService
from translane_server.file_changes import INTERVAL, follow
from translane_server.front_ends.keeper import Keeper
from translane_server.front_ends.metrics import Collected, FrontEndCollector, ParentMetrics
from translane_server.front_ends.model_service import ModelServiceOfAll
from translane_server.front_ends.reserved_port import ReservedPort
from translane_server.listening import Ports, listening_on
from translane_server.operator_ports import OperatorPorts
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
        self._operator_ports: OperatorPorts | None = None
        self._following: asyncio.Task[None] | None = None

    async def open(self, ask: Callable[[], Coroutine[None, None, Collected]]) -> Ports:
        """Keep the ports of the front ends, and open those of operators.

        Args:
            ask: asks all front ends for their metrics.

        Raises:
            StartupError: the server cannot listen on a port, or a certificate is wrong.
        """
        settings = self._settings
        grpc = self._reserve(settings.port)
        http = None if settings.http_port is None else self._reserve(settings.http_port)
        self._operator_ports = ports = OperatorPorts(
            settings,
            FrontEndCollector(self._metrics, ask, asyncio.get_running_loop()).registry,
            self._metrics.of_calls,
            self._health,
            ModelServiceOfAll(self._front_ends),
            certificates=self._metrics_certificates(),
        )
        await ports.open()
        return Ports(grpc, ports.metrics, http=http, health=ports.health, admin=ports.admin)

    async def drain(self) -> None:
        """Change no model any more."""
        if self._operator_ports:
            await self._operator_ports.drain()

    async def close(self) -> None:
        """Close all ports."""
        if self._following:
            self._following.cancel()
        if self._operator_ports:
            await self._operator_ports.close()
        for port in self._reserved:
            port.close()

    def _metrics_certificates(self) -> Certificates | None:
        """Return the certificates of the port of metrics, which follow their files; None without TLS.

        Raises:
            CertificateError: a certificate is wrong.
        """
        settings = self._settings
        certificates = certificates_of(settings.tls_cert, settings.tls_key, settings.tls_client_ca)
        if not (certificates and settings.metrics_tls):
            return None
        self._following = asyncio.create_task(follow([certificates], INTERVAL))
        return certificates

    def _reserve(self, port: int) -> int:
        with listening_on(self._settings.host, port):
            self._reserved.append(ReservedPort(self._settings.host, port))
        return self._reserved[-1].number
