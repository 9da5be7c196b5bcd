"""Ray Serve with the application of `translane_server.ray_serve`, in processes of its own, on loopback."""

import json
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import psutil

from helpers.ports import free_port
from helpers.ray_cluster import processes
from helpers.reliability.form import form
from translane_server.ray_serve.command import config_of

# How long Ray and an application may take to start, and to end [seconds].
_STARTING_TIME = 240.0
_ENDING_TIME = 60.0
# How often Serve looks whether a replica lives. Nothing but that tells Serve of a replica that was killed [seconds].
_LOOK = form(1.0, 10.0)


class RayServe:
    """Ray on this machine, which ends with `close`.

    Args:
        folder: a folder for files of the run.
        cpus: how many CPUs Ray thinks it has; they are more than there are, where tests start many replicas.
    """

    def __init__(self, folder: Path, cpus: int) -> None:
        self._folder = folder
        self.port = free_port()  # the port of the gRPC proxies
        self._ports = ["--port", str(self.port)]
        self._http_port = free_port()
        self.http = f"http://127.0.0.1:{self._http_port}"  # the URL of the HTTP proxy
        self.address = f"127.0.0.1:{self.port}"  # the address of one that listens there
        # Ray has unix sockets in this folder, whose paths have at most 107 characters.
        self._sessions = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
        self._log = (folder / "ray.log").open("w+")
        self._driver = processes.started("driver", self._sessions, str(cpus), log=self._log)
        self._told: Queue[str] = Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def deploy(self, argv: Sequence[str], change: Callable[[dict[str, Any]], object] = lambda _: None) -> None:
        """Deploy the application, or another in its place, and wait until all of it is new.

        Args:
            argv: arguments of `translane ray`, without ports.
            change: changes each deployment of the configuration, as an operator does by hand.
        """
        config = config_of([*self._ports, *argv], {})
        config["http_options"]["port"] = self._http_port
        for application in config["applications"]:
            for deployment in application["deployments"]:
                deployment["health_check_period_s"] = _LOOK
                change(deployment)
        path = self._folder / "serve.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        assert self._driver.stdin
        self._driver.stdin.write(f"{path}\n")
        self._driver.stdin.flush()
        try:
            told = self._told.get(timeout=_STARTING_TIME)
        except Empty:
            told = "it takes too long"
        if told != "running":
            raise RuntimeError(f"Ray Serve does not run: {told}\n{self.log[-4000:]}")

    @property
    def pid(self) -> int:
        """The process that has started Ray, and that all processes of the first node descend from."""
        return self._driver.pid

    @property
    def log(self) -> str:
        """What Ray's driver has written."""
        return Path(self._log.name).read_text(encoding="utf-8", errors="replace")

    def replicas(self, deployment: str = "") -> list[psutil.Process]:
        """Return the processes of the Serve replicas, of one deployment or of all."""
        return processes.replicas(self.pid, deployment)

    def settled(self, count: int, deployment: str = "") -> list[psutil.Process]:
        """Return `replicas` once there are so many: those of an application before may take their time to end."""
        end = time.monotonic() + _ENDING_TIME
        while len(found := self.replicas(deployment)) != count:
            if time.monotonic() > end:
                raise RuntimeError(f"there are {len(found)} Serve replicas, and not {count}")
            time.sleep(0.1)
        return found

    def close(self) -> None:
        """End all processes."""
        children = processes.below(self.pid) if self._driver.poll() is None else []
        assert self._driver.stdin
        assert self._driver.stdout
        self._driver.stdin.close()
        try:
            self._driver.wait(_ENDING_TIME)
        except subprocess.TimeoutExpired:
            self._driver.kill()
            self._driver.wait()
        _, alive = psutil.wait_procs(children, timeout=5)
        for process in alive:
            process.kill()
        self._driver.stdout.close()
        self._log.close()
        shutil.rmtree(self._sessions, ignore_errors=True)

    def _listen(self) -> None:
        assert self._driver.stdout
        for line in self._driver.stdout:
            if line.startswith(processes.MARK):
                self._told.put(line.removeprefix(processes.MARK).strip())
        self._told.put("the driver has ended")
