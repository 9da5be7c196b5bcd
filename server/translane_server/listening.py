"""The addresses that a server listens on, and what is said where it cannot."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

from translane_server.errors import StartupError


def address_of(host: str, port: int) -> str:
    """The address of a port, as gRPC and URLs write it: `HOST:PORT`, or `[HOST]:PORT` for IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


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
