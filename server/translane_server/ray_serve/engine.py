"""The deployment that translates: each Serve replica of it is an engine, with models, keys and limits of its own."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any, NoReturn

import ray
from google.protobuf.message_factory import GetMessageClass
from google.rpc.status_pb2 import Status
from prometheus_client import CollectorRegistry
from ray import serve

from translane.v1 import translation_pb2 as pb
from translane_server.access.authenticator import keys_of
from translane_server.api.answering import Answering, ended_at_deadline
from translane_server.api.call import Call, Method, ToldError, request_id_in
from translane_server.api.service import SERVICE_NAME, TranslationService
from translane_server.app.ports import address_of, listening_on
from translane_server.bundle.manifest import Languages
from translane_server.core.errors import StartupError
from translane_server.core.file_changes import follow
from translane_server.http.metrics_port import MetricsPort
from translane_server.models.build import loaded_models
from translane_server.observation.logs import configure_logging
from translane_server.observation.metrics import Metrics
from translane_server.observation.tracing import Tracer, traces
from translane_server.ray_serve.autoscaling import LOAD, load_of
from translane_server.ray_serve.calls import REMAINING, Answer, Ingress
from translane_server.ray_serve.settings import EngineSettings

_SERVICE = pb.DESCRIPTOR.services_by_name["TranslationService"]

_log = logging.getLogger(__name__)

# Ports that an engine tries for its metrics, from the setting on: other engines of the node have the first ones.
METRICS_PORTS = 64


class Engine(Ingress):
    """The service with its models, limits and metrics. Serve makes it, asks for its health, and ends it.

    Raises StartupError if a model cannot be loaded, or the engine cannot listen.
    """

    async def __init__(self, settings: EngineSettings) -> None:  # type: ignore[misc]  # Serve awaits it
        self._settings = settings
        name = serve.get_replica_context().replica_tag
        configure_logging(self._settings.log_format, self._settings.log_level, always={"engine": name})
        async with AsyncExitStack() as opened:
            tracer = opened.enter_context(traces(os.environ))
            await self._open(opened, Metrics(), tracer, _cpus())
            metrics = _metrics_port(self._settings, self._metrics.registry)
            opened.push_async_callback(metrics.stop)
            await metrics.start()
            self._opened = opened.pop_all()
        # Serve awaits what an engine has under this name. Python itself, which cannot await, asks the class alone.
        self.__del__: Callable[[], Awaitable[None]] = self.stop
        _log.info("metrics on http://%s/metrics", address_of(self._settings.metrics_address, metrics.port))

    async def _open(self, opened: AsyncExitStack, metrics: Metrics, tracer: Tracer | None, cpus: int) -> None:
        settings, self._metrics = self._settings, metrics
        # On a thread, because the file of keys is read.
        keys = await asyncio.to_thread(keys_of, settings, metrics)
        self._models = await opened.enter_async_context(loaded_models(settings, metrics, cpus))
        self._service = TranslationService(
            self._models, settings.max_request_texts, settings.max_message_bytes, log_texts=settings.log_texts
        )
        self._answering = Answering(settings, keys=keys, tracer=tracer, shown_in=metrics)
        if keys:
            following = asyncio.create_task(follow([keys.refresh]))
            opened.callback(following.cancel)
        self._methods = {}
        for method in _SERVICE.methods:
            kind = "server_stream" if method.server_streaming else "unary"
            called = Method(metrics, kind, SERVICE_NAME, method.name, writes_many=method.server_streaming)
            parse = GetMessageClass(method.input_type).FromString
            self._methods[method.name] = called, getattr(self._service, method.name), parse

    async def answers(self, method: str, message: bytes, context: Any) -> AsyncGenerator[Answer, None]:
        """See `Ingress`. If the generator is closed, the rows of the call are free at the next step."""
        transport = _Transport(message)
        # In a task of its own, which the engine may cancel to end the call.
        answering = asyncio.create_task(self._answer(method, transport, context))
        answering.add_done_callback(lambda _task: transport.answers.put_nowait(None))
        try:
            while answer := await transport.answers.get():
                yield answer
                transport.answers.task_done()
            await answering
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)

    async def _answer(self, name: str, transport: _Transport, context: Any) -> None:
        method, handler, parse = self._methods[name]
        metadata = context.invocation_metadata()
        remaining, request_id = _remaining(dict(metadata)), request_id_in(metadata)
        call = Call(method, metadata, context.peer(), timeout=remaining, request_id=request_id)
        with suppress(ToldError), ended_at_deadline(call):
            message = await self._answering.answer(call, transport, handler, parse)
            if not method.writes_many:
                transport.put(message)

    async def languages(self) -> dict[str, Languages]:
        """Return the languages of each model, by the models' names."""
        return {name: model.description.manifest.languages for name, model in self._models.models.items()}

    # What Serve calls

    async def check_health(self) -> None:
        """Raise an error if nothing is translated any more. Serve then replaces the engine."""
        if self._models.has_failed:
            raise RuntimeError("decoding has failed, and nothing is translated any more")

    async def reconfigure(self, user_config: Any) -> None:  # noqa: ARG002  any change of it means the same
        """Replace each model by its newest version soon, while requests run. The log says how it went.

        Serve sends no calls to a Serve replica until this method returns, so it does not wait for the new versions. It
        raises nothing either, because Serve would end an engine that translates for one that cannot start.
        """
        self._models.request_reload()

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the load, for `autoscaling.by_rows`."""
        return {LOAD: load_of(self._metrics)}

    async def stop(self) -> None:
        """End the engine. Serve waits before until the last call is answered, or has taken too long."""
        self._service.close()
        self._models.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.grace_period):
                await self._service.idle()
        await self._opened.aclose()


class _Transport:
    """Carries the messages of a call; see `api.call.Transport`."""

    expansion = 1

    def __init__(self, message: bytes) -> None:
        self._message = message
        # to the call, each of which is done when Serve has taken it; None is the end
        self.answers: asyncio.Queue[Answer | None] = asyncio.Queue()

    async def read(self) -> bytes | None:
        return self._message

    def put(self, message: Any) -> None:
        self.answers.put_nowait(Answer(message.SerializeToString()))

    async def write(self, message: Any, /) -> None:
        self.put(message)
        await self.answers.join()

    async def fail(self, status: Status, /) -> NoReturn:
        self.answers.put_nowait(Answer(status=status))
        raise ToldError


def _remaining(metadata: Mapping[str, Any]) -> float | None:
    """The seconds until a call's deadline; None without one. Where `proxy` is not at work, any caller may set them."""
    try:
        return max(0.0, float(metadata[REMAINING]))
    except (KeyError, ValueError):
        return None


def _cpus() -> int:
    """Number of CPUs that Ray has set aside for this Serve replica, at least one."""
    return max(1, int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1)))


def _metrics_port(settings: EngineSettings, registry: CollectorRegistry) -> MetricsPort:
    """Show the metrics of the engine on the first free port from the setting `metrics_port` on; 0 takes a free one.

    Raises:
        StartupError: no port is free, or there is no such address.
    """
    host, first = settings.metrics_address, settings.metrics_port
    ports = range(first, min(first + METRICS_PORTS, 2**16)) if first else (0,)
    for port in ports:
        with listening_on(host, port):
            try:
                return MetricsPort(registry, host, port)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
    raise StartupError(f"no port from {ports[0]} to {ports[-1]} is free for the metrics")
