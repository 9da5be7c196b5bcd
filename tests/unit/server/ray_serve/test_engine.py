"""An engine without Serve around it: what it answers, reports and shows."""

import asyncio
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import pytest

pytest.importorskip("ray.serve", reason="Ray is not installed")

from prometheus_client import CollectorRegistry, Gauge
from ray.serve.grpc_util import RayServegRPCContext

from fakes.backend import FakeBackend
from fakes.grpc_context import GrpcContext
from fakes.serving import make_dispatcher, make_model, make_registry, make_settings
from helpers.http_calls import until
from translane.v1 import translation_pb2 as pb
from translane_server.core.errors import StartupError
from translane_server.observation.metrics import Metrics
from translane_server.ray_serve import engine as module
from translane_server.ray_serve.calls import REMAINING
from translane_server.ray_serve.engine import Engine
from translane_server.ray_serve.settings import EngineSettings
from translane_server.translation.limits import limits_of


def context(*metadata):
    """Serve's picture of a call's context."""
    return RayServegRPCContext(GrpcContext(*metadata))


@asynccontextmanager
async def engine(monkeypatch):
    """An engine of a fake model."""
    settings, model = make_settings(), make_model()
    made: Any = Engine.__new__(Engine)
    made._settings = settings

    @asynccontextmanager
    async def loaded(_settings, metrics, _cpus):
        registry = make_registry(
            model,
            limits_of(settings.of_model("m"), model.manifest),
            metrics,
            lambda of_model: make_dispatcher(FakeBackend(rows=4), of_model),
        )
        await registry.start()
        try:
            yield registry
        finally:
            await registry.stop()

    monkeypatch.setattr(module, "loaded_models", loaded)
    async with AsyncExitStack() as opened:
        await made._open(opened, Metrics(), None, 1)
        made._opened = opened
        yield made


async def test_a_serve_without_the_methods_of_the_proxy_parses_requests_and_tells_deadlines_of_callers(monkeypatch):
    async with engine(monkeypatch) as made:
        answer = await made.Translate(pb.TranslateRequest(texts=["ab"]), context((REMAINING, "soon")))
        assert pb.TranslateResponse.FromString(answer.message).translations[0].hypotheses[0].text == "ab"


async def test_a_stream_waits_for_its_reader(monkeypatch):
    async with engine(monkeypatch) as made:
        reading = made.TranslateStream(pb.TranslateStreamRequest(text="abcdef").SerializeToString(), context())
        parts = [await anext(reading)]
        (model,) = made._models.models.values()
        await until(lambda: model.ready.dispatcher.active_rows == 0)
        parts += [part async for part in reading]
        assert "".join(pb.TranslateStreamResponse.FromString(part.message).text_delta for part in parts) == "abcdef"
        assert len(parts) < 7  # a slow reader gets more at a time


async def test_it_is_ill_when_no_model_translates(monkeypatch):
    async with engine(monkeypatch) as made:
        await made.check_health()
        made._models = SimpleNamespace(has_failed=True)
        with pytest.raises(RuntimeError, match="nothing is translated any more"):
            await made.check_health()


async def test_engines_of_a_node_take_the_next_free_port():
    registry = CollectorRegistry()
    Gauge("shown", "", registry=registry).set(7)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        first = taken.getsockname()[1]
        settings = EngineSettings(models=Path("/m"), host="192.0.2.1", metrics_host="127.0.0.1", metrics_port=first)
        server = module._metrics_port(settings, registry)
        try:
            assert first < server.port < first + module.METRICS_PORTS
            await server.start()
            with await asyncio.to_thread(urlopen, f"http://127.0.0.1:{server.port}/metrics", timeout=5) as answer:
                assert b"shown 7.0" in answer.read()
        finally:
            await server.stop()


def test_no_port_for_the_metrics_is_told(monkeypatch):
    monkeypatch.setattr(module, "METRICS_PORTS", 1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartupError, match=f"no port from {port} to {port} is free for the metrics"):
            module._metrics_port(EngineSettings(models=Path("/m"), metrics_port=port), CollectorRegistry())
    with pytest.raises(StartupError, match=r"cannot listen on 192\.0\.2\.1:0"):
        module._metrics_port(EngineSettings(models=Path("/m"), host="192.0.2.1", metrics_port=0), CollectorRegistry())
