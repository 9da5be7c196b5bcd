"""The deployment that translates: each Serve replica of it is an engine, a whole server with its processes."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import ExitStack, aclosing
from typing import Any

import grpc
import ray
from ray import serve

from translane_server.api.grpc_port import largest_received
from translane_server.api.listening import address_of, listening_on
from translane_server.app.embedded import EmbeddedServer
from translane_server.bundle.manifest import Languages
from translane_server.core.errors import MessageTooLargeError, StartupError, shutting_down
from translane_server.observation.load import read_load
from translane_server.observation.logs import configure_logging
from translane_server.observation.metrics_server import MetricsServer
from translane_server.observation.trace_setup import traces
from translane_server.ray_serve.autoscaling import LOAD, load_of
from translane_server.ray_serve.calls import Answer, Call
from translane_server.ray_serve.rpcs import Rpcs
from translane_server.ray_serve.settings import read_settings
from translane_server.settings.model_sources import users_cache
from translane_server.settings.server_settings import ServerSettings

_log = logging.getLogger(__name__)

# Ports that an engine tries for its metrics, from the setting on: other engines of the node have the first ones.
METRICS_PORTS = 64


class Engine(Rpcs):
    """A server with its models, limits and metrics. Serve makes it, asks for its health, and ends it.

    Args:
        settings: the settings of the server, as `read_settings` takes them.

    Raises:
        StartupError: the settings are wrong, or a model cannot be loaded.
    """

    async def __init__(self, settings: Mapping[str, Any]) -> None:  # type: ignore[misc]  # Serve awaits it
        given = read_settings(settings)
        self._settings = given.model_copy(update={"model_cache": given.model_cache or users_cache(os.environ)})
        name = serve.get_replica_context().replica_tag
        configure_logging(self._settings.log_format, self._settings.log_level, always={"engine": name})
        with ExitStack() as opened:
            tracer = opened.enter_context(traces(os.environ))
            self._embedded = await EmbeddedServer.start(self._settings, cpus=_cpus(), tracer=tracer)
            try:
                metrics = _metrics_server(self._settings, self._embedded)
            except BaseException:
                await self._embedded.stop(0)
                raise
            opened.callback(metrics.stop)
            self._opened = opened.pop_all()
        # Serve awaits what an engine has under this name. Python itself, which cannot await, asks the class alone.
        self.__del__: Callable[[], Awaitable[None]] = self.stop
        _log.info("metrics on http://%s/metrics", address_of(self._settings.host, metrics.port))

    async def answer_unary(self, path: str, call: Call) -> Answer:
        """See `Rpcs`."""
        if refusal := self._refusal(call):
            return refusal
        metadata = self._metadata(call)
        try:
            return Answer(await self._embedded.forwarder.unary(path, call.message, metadata, call.seconds))
        except grpc.aio.AioRpcError as error:
            return _failed(error)

    async def answer_stream(self, path: str, call: Call) -> AsyncGenerator[Answer, None]:
        """See `Rpcs`. If the generator is closed, the rows of the call are free at the next step."""
        if refusal := self._refusal(call):
            yield refusal
            return
        stream = self._embedded.forwarder.stream(path, call.message, self._metadata(call), call.seconds)
        try:
            async with aclosing(stream) as messages:
                async for message in messages:
                    yield Answer(message)
        except grpc.aio.AioRpcError as error:
            yield _failed(error)

    async def languages(self) -> dict[str, Languages]:
        """Return the languages of each model, by the models' names."""
        models = self._embedded.server.models.models
        return {name: model.description.manifest.languages for name, model in models.items()}

    # What Serve calls

    async def check_health(self) -> None:
        """Raise an error if nothing is translated any more. Serve then replaces the engine."""
        if self._embedded.server.failed.is_set():
            raise RuntimeError("decoding has failed, and nothing is translated any more")

    async def reconfigure(self, user_config: Any) -> None:  # noqa: ARG002  any change of it means the same
        """Replace each model by its newest version soon, while requests run. The log says how it went.

        Serve sends no calls to a Serve replica until this method returns, so it does not wait for the new versions. It
        raises nothing either, because Serve would end an engine that translates for one that cannot start.
        """
        self._embedded.server.request_reload()

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the load, for `autoscaling.by_rows`."""
        return {LOAD: load_of(read_load(self._embedded.server.metrics.registry))}

    async def stop(self) -> None:
        """End the engine. Serve waits before until the last call is answered, or has taken too long."""
        await self._embedded.stop(self._settings.grace_period)
        await asyncio.to_thread(self._opened.close)

    def _refusal(self, call: Call) -> Answer | None:
        """The answer to a message that the server's port would refuse without a reason; None for any other one."""
        size = len(call.message)
        if size <= largest_received(self._settings):
            return None
        allowed = self._settings.max_message_bytes
        return Answer.failed(MessageTooLargeError(f"the message has {size} bytes, and {allowed} are allowed"))

    def _metadata(self, call: Call) -> list[tuple[str, Any]]:
        return [*call.metadata, *self._embedded.metadata_for(call.peer)]


def _failed(error: grpc.aio.AioRpcError) -> Answer:
    """The answer to a call that failed. A port that closes answers with CANCELLED, which tells a caller nothing."""
    if error.code() is grpc.StatusCode.CANCELLED:
        return Answer.failed(shutting_down())
    return Answer.of_call(error)


def _cpus() -> int:
    """Number of CPUs that Ray has set aside for this Serve replica, at least one."""
    return max(1, int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1)))


def _metrics_server(settings: ServerSettings, embedded: EmbeddedServer) -> MetricsServer:
    """Show the metrics of the engine on the first free port from the setting `metrics_port` on; 0 takes a free one.

    Raises:
        StartupError: no port is free, or there is no such address.
    """
    registry, first = embedded.server.metrics.registry, settings.metrics_port
    ports = range(first, min(first + METRICS_PORTS, 2**16)) if first else (0,)
    for port in ports:
        with listening_on(settings.host, port):
            try:
                return MetricsServer(registry, settings.host, port)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
    raise StartupError(f"no port from {ports[0]} to {ports[-1]} is free for the metrics")
