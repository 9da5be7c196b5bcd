"""A server on a real bundle, on loopback and free ports."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc

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


@dataclass
class Running:
    """A started server and a client to it."""

    server: Server
    stub: translation_pb2_grpc.TranslationServiceStub


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
            stub = translation_pb2_grpc.TranslationServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
            yield Running(server, stub)
    finally:
        await server.stop(grace=5)


@asynccontextmanager
async def serving_bundle(
    bundle: Bundle, *, max_batch_size: int, replicas: int = 1, **changes: Any
) -> AsyncIterator[Running]:
    model = (ModelPlace(bundle.folder),)
    settings = small_settings(model=model, replicas=replicas, max_batch_size=max_batch_size, **changes)
    async with serving_models(settings) as running:
        yield running
