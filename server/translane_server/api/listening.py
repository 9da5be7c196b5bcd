"""The addresses that a server listens on, and what is said where it cannot."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from translane_server.core.errors import StartupError
from translane_server.settings.server_settings import ServerSettings

_log = logging.getLogger(__name__)

# The port of ModelService listens on this address alone: whoever can log in to the machine may use it, and nobody else.
ADMIN_HOST = "127.0.0.1"


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
    _log.info("metrics on %s://%s/metrics", scheme, address_of(settings.host, ports.metrics))
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
