"""Where a server can listen, and how many connections it can take."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource
import socket
from collections.abc import Iterator

from translane_server.core.errors import StartupError

_log = logging.getLogger(__name__)

# More descriptors than this are not asked for. Some systems allow a thousand million.
_MOST = 65536

# Descriptors that connections leave to everything else, such as replicas, files and the metrics port: a quarter of all,
# but no fewer and no more than these.
_LEAST_RESERVE, _LARGEST_RESERVE = 128, 1024

# Where nothing is asked for, the log says that fewer than these are possible.
_FEW_CONNECTIONS = 128

# Most connections, however many descriptors there are. gRPC may hold a megabyte of each.
_MOST_CONNECTIONS = 4096


def connection_limit(asked: int | None, ports: int = 1) -> int:
    """How many connections each of so many ports may take. Raises the process's limit of descriptors as far as it can.

    Where nothing is asked for, it is as many as the descriptors allow, 4096 at most.
    """
    descriptors = _raised_limit()
    reserve = min(max(descriptors // 4, _LEAST_RESERVE), _LARGEST_RESERVE)
    possible = max(1, (descriptors - reserve) // ports)
    if possible < (asked or _FEW_CONNECTIONS):
        _log.warning("at most %d connections are taken by a port, as %d file descriptors allow", possible, descriptors)
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


def address_of(host: str, port: int) -> str:
    """The address of a port, as gRPC and URLs write it: `HOST:PORT`, or `[HOST]:PORT` for IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def refuse_taken(host: str, port: int) -> None:
    """Refuse a port that another program listens on, before anything else is done for a server.

    Raises:
        StartupError: the port is taken.
    """
    try:
        _try(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise StartupError(_refusal(host, port, error)) from None


def _try(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.closing(socket.create_server((host, port), family=family)):
        pass


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
        try:
            _try(host, port)
        except OSError as refused:
            error = refused
    if error is None or error.errno is None:
        return f"cannot listen on {address_of(host, port)}"
    # A host name that cannot be resolved has an errno < 0. Python's message for it repeats the address after " (while".
    why = os.strerror(error.errno) if error.errno > 0 else str(error.strerror).partition(" (while")[0]
    return f"cannot listen on {address_of(host, port)}: {why}"
