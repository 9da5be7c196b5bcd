"""The processes of a cluster on this machine: how they are started, and how they are found by what Ray calls them."""

import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import psutil

from helpers.reliability.form import form

ROOT = Path(__file__).parents[3]

# A line of the driver begins so: Ray writes lines of its processes on standard output, too.
MARK = "ray driver: "

# Ray tells nobody of its use.
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "GRPC_VERBOSITY": "NONE",
    "RAY_AUTH_MODE": "disabled",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",  # Serve kills a proxy that takes 15 s to start, and gives up
    "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": form("2", "10"),  # only then Serve notices that a proxy was killed
    "RAY_worker_niceness": "0",  # with Ray's own 15, Serve hardly gets a processor beside other tests
    "RAY_prestart_worker_first_driver": "0",  # no test waits for workers, and each takes seconds to start
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]),
}


def started(name: str, *arguments: str, log: IO[str]) -> subprocess.Popen[str]:
    """Start `driver` or `node` of `programs`, with pipes as standard input and output. It ends with its input."""
    return subprocess.Popen(
        [sys.executable, "-m", "helpers.ray_cluster.programs", name, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        cwd=ROOT,
        env={**os.environ, **_ENVIRONMENT},
    )


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
