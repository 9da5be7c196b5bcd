"""File descriptors: how many connections they allow, and a warning when nearly all are taken."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
from pathlib import Path

from translane_server.observation.logs import data

_log = logging.getLogger(__name__)

# More descriptors than this are not asked for. Some systems allow a thousand million.
_MOST = 65536

# Descriptors that connections leave to everything else, such as replicas, files and the metrics port: a quarter of all,
# but no fewer and no more than these.
_LEAST_RESERVE, _LARGEST_RESERVE = 128, 1024

# Most connections, however many descriptors there are. gRPC may hold a megabyte of each.
_MOST_CONNECTIONS = 4096

# How often the descriptors are counted [seconds].
_INTERVAL = 5.0

# Shares of all connections: from the first one on, the log warns. Below the second one, it may warn again.
_NEAR, _FAR = 0.9, 0.8

_OPEN_DESCRIPTORS = (Path("/proc/self/fd"), Path("/dev/fd"))  # of Linux, and of macOS


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


def count_open() -> int | None:
    """Number of this process's open descriptors; None if the system does not tell.

    Raises:
        OSError: no descriptor is left.
    """
    for folder in _OPEN_DESCRIPTORS:
        if folder.is_dir():
            return len(os.listdir(folder))  # noqa: PTH208 this may run often, and paths are not needed
    return None


async def watch_connections(connections: int) -> None:
    """Log one line when nearly as many `connections` are open as the server takes, and one line when fewer are again.

    Runs until it is cancelled. It starts before the first connection.
    """
    others = count_open()
    if others is None:
        return
    warned = False
    while True:
        await asyncio.sleep(_INTERVAL)
        try:
            taken = (await asyncio.to_thread(count_open) or 0) - others
        except OSError:
            taken = connections
        if taken >= _NEAR * connections and not warned:
            warned = True
            _log.warning(
                "nearly all connections are taken; those beyond the limit are closed at once",
                extra=data(descriptors=taken + others, connections=connections),
            )
        elif taken < _FAR * connections and warned:
            warned = False
            _log.info("connections are free again", extra=data(descriptors=taken + others, connections=connections))
