"""The parent of the front ends: it starts them, keeps them running, and speaks for all of them.

It takes no requests, loads no model, and imports neither numpy nor ONNX Runtime.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from grpc_health.v1 import health_pb2

from translane_server.access.guard import warn_of_what_is_missing
from translane_server.access.shared_allowances import SharedAllowances
from translane_server.api.health import HealthService
from translane_server.cpus import available_cpus
from translane_server.dispatch.processes import OwnProcess
from translane_server.front_ends.front_end_connection import FrontEndGoneError
from translane_server.front_ends.keeper import Keeper
from translane_server.front_ends.messages import Collect, FrontEndSetup, Hurry, Reload, Stop
from translane_server.front_ends.metrics import PATIENCE, Collected, ParentMetrics
from translane_server.front_ends.parent_ports import ParentPorts
from translane_server.front_ends.shares import shares_of
from translane_server.listening import log_addresses
from translane_server.settings import ServerSettings

_log = logging.getLogger(__name__)

# Runs a front end; "serve" and a file descriptor follow. -P: Python imports nothing from the working directory.
COMMAND = (sys.executable, "-P", "-m", "translane_server.front_ends")

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING

# How often the parent looks whether the front ends answer [seconds].
_TICK = 1.0

# Time beyond the grace period in which front ends close, and after a second signal [seconds].
_CLOSING_TIME = 5.0


class Parent:
    """The parent. It has the methods of `server.Server`.

    Args:
        settings: settings of the server, with more than one front end.
        allowances: limits of keys that hold for all front ends; None without keys.
        command: runs a front end; "serve" and a file descriptor follow.

    Attributes:
        failed: set when no front end is left.

    Raises:
        SettingsError: a front end would get too little of something.
    """

    def __init__(
        self, settings: ServerSettings, allowances: SharedAllowances | None = None, command: Sequence[str] = COMMAND
    ) -> None:
        self.failed = asyncio.Event()
        self._settings = settings
        self._shares = shares_of(settings, available_cpus())
        self._allowances = allowances
        self._command = command
        self._metrics = ParentMetrics()
        self._metrics.limit.set(settings.front_ends)
        self._health = HealthService()
        self._front_ends: list[Keeper] = []
        self._ports = ParentPorts(settings, self._metrics, self._health, self._front_ends)
        self._watching: asyncio.Task[None] | None = None

    @property
    def can_translate(self) -> bool:
        """Whether any front end translates."""
        return any(front_end.translates for front_end in self._front_ends)

    def request_reload(self) -> None:
        """Let all front ends reload their models soon."""
        self._send(Reload())

    async def start(self) -> None:
        """Keep the ports of the front ends, and open those of the parent.

        Raises:
            StartupError: the server cannot listen on a port.
        """
        self._tell_health()
        self._addresses = await self._ports.open(self._collect)
        ports = {"port": self._addresses.grpc, "http_port": self._addresses.http}
        shared = self._allowances.descriptor if self._allowances else None
        for number, share in enumerate(self._shares):
            setup = FrontEndSetup(number, share.settings.model_copy(update=ports), share.cpus, shared)
            host = OwnProcess(self._command, [] if shared is None else [shared])
            self._front_ends.append(Keeper(setup, host, self._tell_health, self._count_loss))
        self._watching = asyncio.create_task(self._watch())

    async def open(self) -> None:
        """Start all front ends, and wait until each of them listens and translates.

        Raises:
            StartupError: a front end cannot start.
        """
        await asyncio.gather(*(front_end.start() for front_end in self._front_ends))
        log_addresses(self._settings, self._addresses)
        warn_of_what_is_missing(self._settings)

    async def stop(self, grace: float, hurry: asyncio.Event | None = None) -> bool:
        """Let all front ends drain at once, and end them. See `server.Server.stop`."""
        if self._watching:
            self._watching.cancel()
        for front_end in self._front_ends:
            front_end.let_end()
        await self._ports.drain()
        self._health.close()
        serving = [front_end for front_end in self._front_ends if front_end.health]
        self._send(Stop(grace))
        drained = await self._drained(serving, grace, hurry)
        await asyncio.gather(*(front_end.stop() for front_end in self._front_ends))
        await self._ports.close()
        return drained

    async def _drained(self, front_ends: Sequence[Keeper], grace: float, hurry: asyncio.Event | None) -> bool:
        """Wait until all have drained; return whether they finished all translations."""
        if not front_ends:
            return True
        ends = [front_end.drained for front_end in front_ends]
        hurrying = asyncio.ensure_future(hurry.wait() if hurry else asyncio.Event().wait())
        done = asyncio.ensure_future(asyncio.wait(ends))
        waited: set[asyncio.Future[Any]] = {done, hurrying}
        await asyncio.wait(waited, timeout=grace + _CLOSING_TIME, return_when=asyncio.FIRST_COMPLETED)
        if not done.done() and hurrying.done():
            self._send(Hurry())
            await asyncio.wait([done], timeout=_CLOSING_TIME)
        hurrying.cancel()
        done.cancel()
        return all(end.done() and end.result() for end in ends)

    def _send(self, message: object) -> None:
        for front_end in self._front_ends:
            front_end.send(message)

    async def _collect(self) -> Collected:
        """Return the metrics of all front ends that answer in time."""
        serving = [front_end for front_end in self._front_ends if front_end.health]
        asked = {each.number: asyncio.create_task(each.answer(Collect())) for each in serving}
        if asked:
            await asyncio.wait(asked.values(), timeout=PATIENCE)
        collected = {}
        for number, task in asked.items():
            if not task.done():
                task.cancel()
                self._metrics.silences.inc()
            elif not task.cancelled() and not isinstance(task.exception(), FrontEndGoneError):
                collected[number] = task.result()
        return collected

    async def _watch(self) -> None:
        """Notice front ends that do not answer any more."""
        while True:
            await asyncio.sleep(_TICK)
            self._tell_health()

    def _count_loss(self, number: int) -> None:
        self._metrics.losses.inc()
        if self._allowances:
            self._allowances.forget(number)

    def _tell_health(self) -> None:
        """Tell the health of the whole: a service serves while it serves in any front end."""
        states: dict[str, health_pb2.HealthCheckResponse.ServingStatus] = defaultdict(lambda: _NOT_SERVING)
        states[""] = _NOT_SERVING
        for front_end in self._front_ends:
            for service, state in front_end.health.items():
                states[service] = _SERVING if state == _SERVING and front_end.translates else states[service]
        self._health.replace(states)
        self._metrics.running.set(sum(front_end.translates for front_end in self._front_ends))
        if self._front_ends and all(front_end.is_given_up for front_end in self._front_ends):
            if not self.failed.is_set():
                _log.error("no front end is left; the server ends")
            self.failed.set()
