"""The ports of a server: where it listens, how many connections it takes, and the ports of whoever operates it."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

from translane.v1.models_pb2_grpc import ModelServiceServicer
from translane_server.access.certificates import Certificates
from translane_server.api.health import HealthPort, HealthService
from translane_server.api.model_service import ADMIN_HOST, AdminPort
from translane_server.core.errors import StartupError
from translane_server.http.metrics_port import MetricsPort
from translane_server.observation.metrics import Metrics
from translane_server.observation.tracing import Tracer
from translane_server.settings.server_settings import ServerSettings

_log = logging.getLogger(__name__)

# More descriptors than this are not asked for. Some systems allow a thousand million.
_MOST = 65536

# Descriptors that connections leave to everything else, such as replicas, files and the metrics port: a quarter of all,
# but no fewer and no more than these.
_LEAST_RESERVE, _LARGEST_RESERVE = 128, 1024

# Most connections, however many descriptors there are. gRPC may hold a megabyte of each.
_MOST_CONNECTIONS = 4096


def connection_limit(asked: int | None) -> int:
    """How many connections the server may take. Raises the process's limit of open descriptors as far as it can.

    Args:
        asked: the setting; None for as many as the descriptors allow, 4096 at most.
    """
    descriptors = _raised_limit()
    reserve = min(max(descriptors // 4, _LEAST_RESERVE), _LARGEST_RESERVE)
    possible = max(1, descriptors - reserve)
    if asked is not None and asked > possible:
        _log.warning("at most %d connections are taken, as %d file descriptors allow", possible, descriptors)
    return min(asked or _MOST_CONNECTIONS, possible)


def _raised_limit() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft >= wanted:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # macOS allows fewer than it says
        return soft
    return wanted


@dataclass(frozen=True)
class Ports:
    """The ports that a server listens on; None where the settings have no such port."""

    grpc: int
    metrics: int
    http: int | None = None
    health: int | None = None
    admin: int | None = None


def address_of(host: str, port: int) -> str:
    """The address of a port, as gRPC and URLs write it: `HOST:PORT`, or `[HOST]:PORT` for IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def log_addresses(settings: ServerSettings, ports: Ports) -> None:
    """Log where the server listens."""
    _log.info("listening on %s", address_of(settings.host, ports.grpc))
    if ports.http is not None:
        scheme = "https" if settings.tls_cert else "http"
        _log.info("JSON on %s://%s", scheme, address_of(settings.host, ports.http))
    scheme = "https" if settings.metrics_tls else "http"
    _log.info("metrics on %s://%s/metrics", scheme, address_of(settings.metrics_address, ports.metrics))
    if ports.health is not None:
        _log.info("health on %s", address_of(settings.host, ports.health))
    if ports.admin is not None:
        _log.info("models are loaded and unloaded on %s", address_of(ADMIN_HOST, ports.admin))


@contextlib.contextmanager
def listening_on(host: str, port: int) -> Iterator[None]:
    """Say why the server cannot listen on `host`:`port`, where what runs within raises OSError, or gRPC's RuntimeError.

    Raises:
        StartupError: the server cannot listen there.
    """
    try:
        yield
    except RuntimeError:
        raise StartupError(_refusal(host, port)) from None
    except OSError as error:
        raise StartupError(_refusal(host, port, error)) from None


def _refusal(host: str, port: int, error: OSError | None = None) -> str:
    """Why the server cannot listen on `host`:`port`. gRPC gives no reason, so this function tries once more."""
    if error is None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            with contextlib.closing(socket.create_server((host, port), family=family)):
                pass
        except OSError as refused:
            error = refused
    if error is None or error.errno is None:
        return f"cannot listen on {address_of(host, port)}"
    # A host name that cannot be resolved has an errno < 0. Python's message for it repeats the address after " (while".
    why = os.strerror(error.errno) if error.errno > 0 else str(error.strerror).partition(" (while")[0]
    return f"cannot listen on {address_of(host, port)}: {why}"


@dataclass
class OperatorPorts:
    """The ports of whoever operates the server, as far as the settings have them.

    Attributes:
        settings: settings of the server.
        metrics: what the port of metrics shows. They count the calls of the other ports, too.
        health: answers health checks.
        models: answers the calls of ModelService.
        certificates: the certificates of the port of metrics; None without TLS.
        tracer: begins the spans of calls; None if calls are not traced.
        metrics_port: the port of metrics; None before `open`.
        admin_port: the port of ModelService; None if it is not open.
        health_port: the port of health checks; None if it is not open.
    """

    settings: ServerSettings
    metrics: Metrics
    health: HealthService
    models: ModelServiceServicer
    certificates: Certificates | None
    tracer: Tracer | None
    metrics_port: MetricsPort | None = field(default=None, init=False)
    admin_port: AdminPort | None = field(default=None, init=False)
    health_port: HealthPort | None = field(default=None, init=False)

    async def open(self) -> None:
        """Open the ports. `close` closes them, even if one of them has failed to open.

        Raises:
            StartupError: the server cannot listen on a port.
        """
        settings, host = self.settings, self.settings.host
        context = self.certificates.current.context if self.certificates else None
        with listening_on(settings.metrics_address, settings.metrics_port):
            self.metrics_port = MetricsPort(
                self.metrics.registry, settings.metrics_address, settings.metrics_port, context
            )
        await self.metrics_port.start()
        if settings.admin_port is not None:
            with listening_on(ADMIN_HOST, settings.admin_port):
                self.admin_port = AdminPort(
                    self.models, self.metrics, settings.admin_port, reflects=settings.reflection, tracer=self.tracer
                )
            await self.admin_port.start()
        if settings.health_port is not None:
            with listening_on(host, settings.health_port):
                self.health_port = HealthPort(self.health, self.metrics, address_of(host, settings.health_port))
            await self.health_port.start()

    async def drain(self) -> None:
        """Change no model any more."""
        if self.admin_port:
            await self.admin_port.stop()

    async def close(self) -> None:
        """Close the ports of metrics and of health checks, which answer until the server has drained."""
        for port in (self.health_port, self.metrics_port):
            if port:
                await port.stop()
