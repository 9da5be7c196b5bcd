"""Further nodes of a Ray cluster, as processes of this machine: they are killed as whole machines are lost."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from helpers.ray_serve import ENVIRONMENT

_PROGRAM = Path(__file__).with_name("ray_node.py")
_ENDING_TIME = 10.0  # [seconds]


class RayNodes:
    """Nodes that join a cluster.

    Args:
        folder: for their log; is there.
        driver: the process that has started the cluster.
        cpus: of each node.
    """

    def __init__(self, folder: Path, driver: psutil.Process, cpus: int) -> None:
        self._log = (folder / "nodes.log").open("a")
        self._address = _address_of(driver)
        self._cpus = str(cpus)
        self._nodes: list[subprocess.Popen[str]] = []

    def add(self) -> None:
        """Start a node, which joins the cluster. RuntimeError: the node does not start."""
        node = subprocess.Popen(
            [sys.executable, str(_PROGRAM), self._address, self._cpus],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **ENVIRONMENT},
        )
        self._nodes.append(node)
        assert node.stdout
        if node.stdout.readline() != "running\n":
            raise RuntimeError(f"a node of Ray does not start:\n{Path(self._log.name).read_text()[-2000:]}")

    def replicas(self) -> list[psutil.Process]:
        """The Serve replicas on these nodes."""
        return [each for node in self._nodes for each in serve_replicas(node.pid)]

    def kill(self) -> int:
        """Kill all processes of the node that has joined first, and return how many there were."""
        return _end(self._nodes.pop(0))

    def close(self) -> None:
        """End all nodes."""
        while self._nodes:
            _end(self._nodes.pop())
        self._log.close()


@contextlib.contextmanager
def ray_nodes(folder: Path, driver: psutil.Process, cpus: int = 1) -> Iterator[RayNodes]:
    """Have nodes within the `with` block. The arguments are those of `RayNodes`."""
    nodes = RayNodes(folder, driver, cpus)
    try:
        yield nodes
    finally:
        nodes.close()


def serve_replicas(pid: int) -> list[psutil.Process]:
    """The Serve replicas below a process."""
    return [each for each in _below(pid) if _name(each).startswith("ray::ServeReplica:")]


def proxies(pid: int) -> list[psutil.Process]:
    """Serve's proxies below a process: one on each node."""
    return [each for each in _below(pid) if _name(each).startswith("ray::ProxyActor")]


def _end(node: subprocess.Popen[str]) -> int:
    family = [*_below(node.pid), psutil.Process(node.pid)]
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    node.wait(_ENDING_TIME)
    for stream in (node.stdin, node.stdout):
        assert stream
        stream.close()
    return len(family)


def _address_of(driver: psutil.Process) -> str:
    """The address that nodes join at, from the arguments of the cluster's first raylet."""
    for process in driver.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            for argument in process.cmdline():
                if argument.startswith("--gcs-address="):
                    return argument.partition("=")[2]
    raise RuntimeError("Ray does not run")


def _below(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _name(process: psutil.Process) -> str:
    try:
        return (process.cmdline() or [""])[0]
    except psutil.Error:
        return ""
