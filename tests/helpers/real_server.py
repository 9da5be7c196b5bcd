"""A server on a real bundle, on loopback and free ports."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from helpers import http_calls
from helpers.http_calls import Answer
from translane.v1 import translation_pb2_grpc
from translane_server.app.server import Server
from translane_server.bundle.bundle import Bundle
from translane_server.models.build import build_registry
from translane_server.observation.metrics import Metrics
from translane_server.observation.tracing import Tracer
from translane_server.settings.model_sources import ModelPlace
from translane_server.settings.server_settings import ServerSettings

# Options of a request whose texts are translated as they are, as other programs translate them.
AS_THEY_ARE: dict[str, Any] = {"split_sentences": False, "preserve_untranslatable": False}


class Running:
    """A started server and a client to it."""

    def __init__(self, server: Server, channel: grpc.aio.Channel) -> None:
        self.server = server
        self.channel = channel
        self.stub = translation_pb2_grpc.TranslationServiceStub(channel)  # type: ignore[no-untyped-call]  # generated

    async def request(self, method: str, path: str, *body_and_headers: Any, **more: Any) -> Answer:
        """Send one request to the HTTP port."""
        return await http_calls.request(self.server.http_port, method, path, *body_and_headers, **more)

    async def call(self, name: str, content: Any, headers: dict[str, str] | None = None, **more: Any) -> Answer:
        """Call a method of TranslationService with JSON."""
        return await http_calls.call(self.server.http_port, name, content, headers, **more)

    def value(self, metric: str, **labels: str) -> float | None:
        """The value of a series; None if there is none."""
        return self.server.metrics.registry.get_sample_value(metric, labels)


def small_settings(**values: Any) -> ServerSettings:
    """Settings of a server as small as can be, on free ports, with these values in place of others."""
    small = {"port": 0, "metrics_port": 0, "replicas": 1, "threads": 1, "max_batch_size": 4, "device": "cpu"}
    return ServerSettings.model_validate(small | values)


@asynccontextmanager
async def serving_models(
    settings: ServerSettings, tracer: Tracer | None = None, cpus: int | None = None
) -> AsyncIterator[Running]:
    """Serve what `settings` name, on so many CPUs."""
    metrics = Metrics()
    server = Server(settings, build_registry(settings, metrics, cpus), metrics, tracer)
    try:
        await server.start()
        await server.open()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            yield Running(server, channel)
    finally:
        await server.stop(grace=5)


def serving_library(
    library: Path, tracer: Tracer | None = None, **changes: Any
) -> AbstractAsyncContextManager[Running]:
    """Serve all models in a folder."""
    return serving_models(small_settings(models=library, **changes), tracer)


@asynccontextmanager
async def serving_bundle(
    bundle: Bundle, *, max_batch_size: int, replicas: int = 1, **changes: Any
) -> AsyncIterator[Running]:
    model = (ModelPlace(bundle.folder),)
    settings = small_settings(model=model, replicas=replicas, max_batch_size=max_batch_size, **changes)
    async with serving_models(settings) as running:
        yield running
