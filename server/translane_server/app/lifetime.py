"""Checks models, starts the server, waits for a signal, and drains. A service manager hears of it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import re
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib import import_module
from importlib.metadata import version

import uvloop

from translane.command_error import packages_load
from translane_server.app.ports import refuse_taken
from translane_server.core.machine import available_cpus
from translane_server.models.build import build_registry, shortages
from translane_server.models.registry import Registry
from translane_server.observation.log_writer import written_in_background
from translane_server.observation.logs import configure_logging, data
from translane_server.observation.metrics import Metrics
from translane_server.observation.tracing import Tracer, traces
from translane_server.settings.model_sources import is_loopback
from translane_server.settings.server_settings import ServerSettings

_log = logging.getLogger(__name__)

# Longest wait for a manager that does not read [seconds]. The event loop waits meanwhile.
_TIMEOUT = 0.1


def run(settings: ServerSettings, environ: Mapping[str, str]) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code; see `translane_server.app.command`.

    Raises:
        StartupError: the server cannot start.
    """
    if settings.check:
        _import_ports()
        from translane_server.app.check import check

        configure_logging(settings.log_format, "error")
        for line in check(settings):
            print(line, flush=True)
        return 0
    configure_logging(settings.log_format, settings.log_level)
    with written_in_background(), traces(environ) as tracer:
        metrics = Metrics()
        models = build_registry(settings, metrics)
        for shortage in shortages(settings, models):
            _log.warning("%s", shortage)
        return uvloop.run(_serve(settings, models, metrics, tracer, environ.get("NOTIFY_SOCKET")))


def changed(settings: ServerSettings) -> dict[str, str]:
    """The settings that have another value than the default, as the log shows them: without what may be secret."""
    values = {name: getattr(settings, name) for name in type(settings).model_fields}
    return {name: _shown(value) for name, value in values.items() if value != type(settings).model_fields[name].default}


def _shown(value: object) -> str:
    if isinstance(value, str) and "://" in value:  # may have a password, and a query with one
        return re.sub("(?<=://)[^/]*@", "", value).partition("?")[0]
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def tell_manager(address: str | None, state: str) -> None:
    """Tell a service manager of the server's state. One that cannot be told is no reason to end: the log says so.

    The address is the path of a unix datagram socket, or the name of an abstract one after "@"; the manager hands it
    over in the variable NOTIFY_SOCKET. Without it nobody is told anything. For the state, see
    https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html.
    """
    if not address:
        return
    # The name of an abstract socket starts with a zero byte.
    address = f"\0{address[1:]}" if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.settimeout(_TIMEOUT)
            sender.sendto(state.encode(), address)
    except (OSError, ValueError) as error:  # ValueError: a zero byte within a path
        _log.warning("the service manager at NOTIFY_SOCKET cannot be told anything: %s", error)


class _Signals:
    """Handles SIGTERM and SIGINT. The first signal sets `stop`, the second sets `hurry`, and a third kills.

    SIGHUP calls `reload`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, reload: Callable[[], None]) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()
        self.number = 0
        self._loop = loop
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._received, number)
        loop.add_signal_handler(signal.SIGHUP, reload)

    def _received(self, number: int) -> None:
        self.number = number
        if self.stop.is_set():
            self.hurry.set()
            for each in (signal.SIGTERM, signal.SIGINT):
                self._loop.remove_signal_handler(each)
        self.stop.set()


def _import_ports() -> None:
    """Import the last of what a server needs; from now on, garbage is collected.

    Raises:
        PackageError: a package does not load.
    """
    with packages_load():
        import_module("translane_server.app.server")
    gc.collect()
    gc.freeze()  # what is imported stays, so no later collection needs to look at it
    gc.enable()


async def _serve(
    settings: ServerSettings, models: Registry, metrics: Metrics, tracer: Tracer | None, manager: str | None
) -> int:
    signals = _Signals(asyncio.get_running_loop(), models.request_reload)
    for host, port in ((settings.host, settings.port), (settings.metrics_address, settings.metrics_port)):
        refuse_taken(host, port)
    _log.info("translane %s on %d CPUs", version("translane"), available_cpus(), extra=data(**changed(settings)))
    # Models load in other processes while this one imports the ports, on a thread, and opens them.
    loading = asyncio.create_task(models.start())
    stop: Callable[[], Awaitable[object]] = models.stop
    try:
        await asyncio.to_thread(_import_ports)
        from translane_server.app.server import Server

        with_page = settings.page and is_loopback(settings.host)
        server = Server(settings, models, metrics, tracer, with_page=with_page)
        stop = partial(server.stop, grace=0)
        await server.start()
        opening = asyncio.create_task(server.open(loading))
        stopping = asyncio.create_task(signals.stop.wait())
        await asyncio.wait([opening, stopping], return_when=asyncio.FIRST_COMPLETED)
        if opening.done():
            await opening
            tell_manager(manager, "READY=1\nSTATUS=translating")
            await stopping
        else:
            opening.cancel()
            await asyncio.wait([opening])
            if not models.can_translate:  # no request was accepted yet
                await stop()
                return 0
    except BaseException:
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
        await stop()
        raise
    tell_manager(manager, "STOPPING=1\nSTATUS=finishing what is running")
    name = signal.Signals(signals.number).name
    if settings.drain_delay:
        _log.info("%s: not ready any more; new calls are answered for %g seconds", name, settings.drain_delay)
        server.leave()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(signals.hurry.wait(), settings.drain_delay)
    _log.info("%s: finishing what is running", name)
    drained = await server.stop(settings.grace_period, signals.hurry)
    if signals.hurry.is_set():
        _log.warning("stopped at once")
        return 128 + signals.number
    if not drained:
        _log.warning("stopped after the grace period of %g seconds, with requests unfinished", settings.grace_period)
    else:
        _log.info("stopped; every accepted request is answered")
    return 0
