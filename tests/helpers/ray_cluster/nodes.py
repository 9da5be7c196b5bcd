"""Further nodes of a Ray cluster, as processes of this machine: they are killed as whole machines are lost."""

import contextlib
import subprocess
import time
from pathlib import Path

import psutil

from helpers.ray_cluster import processes

# How long Ray may take to start, and to end [seconds].
_STARTING_TIME = 240.0
_ENDING_TIME = 10.0


class RayNodes:
    """Nodes that join a cluster.

    Args:
        folder: for their log; is there.
        driver: the process that starts the cluster; see `RayServe.pid`.
        cpus: of each node.
    """

    def __init__(self, folder: Path, driver: int, cpus: int) -> None:
        self._log = (folder / "nodes.log").open("a")
        self._address = _address_of(driver)
        self._cpus = str(cpus)
        self._nodes: list[subprocess.Popen[str]] = []

    def add(self) -> None:
        """Start a node, which joins the cluster. RuntimeError: the node does not start."""
        node = processes.started("node", self._address, self._cpus, log=self._log)
        self._nodes.append(node)
        assert node.stdout
        if node.stdout.readline() != "running\n":
            raise RuntimeError(f"a node of Ray does not start:\n{Path(self._log.name).read_text()[-2000:]}")

    def replicas(self) -> list[psutil.Process]:
        """The Serve replicas on these nodes."""
        return [each for node in self._nodes for each in processes.replicas(node.pid)]

    def proxies(self, port: int) -> list[psutil.Process]:
        """Serve's proxies on these nodes that listen on a port. Serve starts them after the replicas."""
        return [each for node in self._nodes for each in processes.proxies(node.pid) if _listens(each, port)]

    def kill(self) -> int:
        """Kill all processes of the node that has joined first, and return how many there were."""
        return _end(self._nodes.pop(0))

    def close(self) -> None:
        """End all nodes."""
        while self._nodes:
            _end(self._nodes.pop())
        self._log.close()


def _end(node: subprocess.Popen[str]) -> int:
    family = [*processes.below(node.pid), psutil.Process(node.pid)]
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    node.wait(_ENDING_TIME)
    for stream in (node.stdin, node.stdout):
        assert stream
        stream.close()
    return len(family)


def _listens(process: psutil.Process, port: int) -> bool:
    with contextlib.suppress(psutil.Error):
        listening = (each for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN)
        return any(each.laddr.port == port for each in listening)
    return False


def _address_of(driver: int) -> str:
    """The address that nodes join at, from the arguments of the cluster's first raylet. Waits until it runs."""
    end = time.monotonic() + _STARTING_TIME
    while time.monotonic() < end:
        for process in processes.below(driver):
            with contextlib.suppress(psutil.Error):
                for argument in process.cmdline():
                    if argument.startswith("--gcs-address="):
                        return argument.partition("=")[2]
        time.sleep(0.2)
    raise RuntimeError("Ray does not run")
