"""The processes of a cluster, found by what Ray calls them."""

from __future__ import annotations

import psutil


def below(pid: int) -> list[psutil.Process]:
    """All processes that a process or its processes have started; none if it has ended."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def replicas(pid: int, deployment: str = "") -> list[psutil.Process]:
    """The Serve replicas below a process, of one deployment or of all."""
    return _named(pid, f"ray::ServeReplica:translane:{deployment}")


def proxies(pid: int) -> list[psutil.Process]:
    """Serve's proxies below a process: one on each node."""
    return _named(pid, "ray::ProxyActor")


def _named(pid: int, start: str) -> list[psutil.Process]:
    return [process for process in below(pid) if _name(process).startswith(start)]


def _name(process: psutil.Process) -> str:
    try:
        return (process.cmdline() or [""])[0]
    except psutil.Error:
        return ""
