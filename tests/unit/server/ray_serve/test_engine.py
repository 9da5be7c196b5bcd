"""An engine without Serve around it: what it answers, reports and shows."""

import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import grpc
import pytest

pytest.importorskip("ray.serve", reason="Ray is not installed")

from prometheus_client import CollectorRegistry, Gauge

from helpers.reliability.failures import parsed
from translane_server.core.errors import StartupError
from translane_server.ray_serve import engine as module
from translane_server.ray_serve.autoscaling import LOAD
from translane_server.ray_serve.calls import Answer, Call
from translane_server.ray_serve.engine import Engine
from translane_server.ray_serve.rpcs import STREAM, TRANSLATE
from translane_server.settings.server_settings import ServerSettings

CALL = Call(b"request", (("authorization", "Bearer k"),), "ipv4:192.0.2.7:1", 2.0)


class Forwarder:
    def __init__(self, *results):
        self.results = results
        self.calls = []

    async def unary(self, *arguments):
        self.calls.append(arguments)
        if isinstance(self.results[0], Exception):
            raise self.results[0]
        return self.results[0]

    async def stream(self, *arguments):
        self.calls.append(arguments)
        for each in self.results:
            if isinstance(each, Exception):
                raise each
            yield each


def engine_with(*results, **server):
    made: Any = Engine.__new__(Engine)
    forwarder = Forwarder(*results)
    made._settings = ServerSettings(models=Path("/m"), max_message_bytes=1024)
    made._embedded = SimpleNamespace(
        forwarder=forwarder,
        metadata_for=lambda peer: [("translane-forwarded-peer", peer)],
        server=SimpleNamespace(**server),
    )
    return made, forwarder


def failure(code, details="", trailers=()):
    error: Any = grpc.aio.AioRpcError  # whose types ask for more than it does
    return error(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailers), details=details)


async def test_calls_reach_the_server_as_calls_of_the_caller():
    made, forwarder = engine_with(b"answer")
    metadata = [*CALL.metadata, ("translane-forwarded-peer", CALL.peer)]
    assert await made.answer_unary(TRANSLATE, CALL) == Answer(b"answer")
    assert forwarder.calls == [(TRANSLATE, b"request", metadata, 2.0)]
    made, forwarder = engine_with(b"a", b"b")
    assert [each async for each in made.answer_stream(STREAM, CALL)] == [Answer(b"a"), Answer(b"b")]
    assert forwarder.calls == [(STREAM, b"request", metadata, 2.0)]


async def test_statuses_pass():
    trailers = (("grpc-status-details-bin", b"\x08\x05"),)
    wrong = failure(grpc.StatusCode.NOT_FOUND, "no such model", trailers)
    expected = Answer(b"", grpc.StatusCode.NOT_FOUND, "no such model", trailers)
    assert await engine_with(wrong)[0].answer_unary(TRANSLATE, CALL) == expected
    answers = [each async for each in engine_with(b"a", wrong)[0].answer_stream(STREAM, CALL)]
    assert answers == [Answer(b"a"), expected]


async def test_a_message_that_the_port_does_not_receive_is_too_large():
    made, forwarder = engine_with(b"answer")
    received = replace(CALL, message=bytes(2048))  # the server itself refuses it, and counts it
    assert await made.answer_unary(TRANSLATE, received) == Answer(b"answer")
    forwarder.calls.clear()
    call = replace(CALL, message=bytes(2049))
    answers = [await made.answer_unary(TRANSLATE, call), *[each async for each in made.answer_stream(STREAM, call)]]
    assert len(answers) == 2
    assert forwarder.calls == []
    for answer in answers:
        failure = parsed(answer.code, dict(answer.trailers)["grpc-status-details-bin"], answer.details)
        assert (failure.code, failure.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE")
        assert failure.message == "the message has 2049 bytes, and 1024 are allowed"
        assert not failure.is_refusal


async def test_a_closing_port_is_unavailable():
    answer = await engine_with(failure(grpc.StatusCode.CANCELLED))[0].answer_unary(TRANSLATE, CALL)
    assert (answer.code, answer.details) == (grpc.StatusCode.UNAVAILABLE, "the server is shutting down")


async def test_the_load_is_that_of_the_busiest_model():
    registry = CollectorRegistry()
    rows = Gauge("translane_rows", "", ["model", "state"], registry=registry)
    limit = Gauge("translane_rows_limit", "", ["model"], registry=registry)
    waiting = Gauge("translane_sentences_waiting", "", ["model"], registry=registry)
    for model, active, queued in (("a", 5, 3), ("b", 1, 0)):
        rows.labels(model, "active").set(active)
        rows.labels(model, "free").set(32 - active)
        limit.labels(model).set(32)
        waiting.labels(model).set(queued)
    made, _ = engine_with(metrics=SimpleNamespace(registry=registry))
    assert await made.record_autoscaling_stats() == {LOAD: 0.25}


@pytest.mark.parametrize("failed", [False, True])
async def test_health(failed):
    made, _ = engine_with(failed=SimpleNamespace(is_set=lambda: failed))
    if failed:
        with pytest.raises(RuntimeError, match="nothing is translated any more"):
            await made.check_health()
    else:
        await made.check_health()


async def test_any_new_configuration_asks_for_new_versions():
    asked = []
    made, _ = engine_with(request_reload=lambda: asked.append(True))
    await made.reconfigure({"reload": 2})
    assert asked == [True]


def metrics_of(settings, registry):
    embedded: Any = SimpleNamespace(server=SimpleNamespace(metrics=SimpleNamespace(registry=registry)))
    return module._metrics_server(settings, embedded)


def test_engines_of_a_node_take_the_next_free_port():
    registry = CollectorRegistry()
    Gauge("shown", "", registry=registry).set(7)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        first = taken.getsockname()[1]
        server = metrics_of(ServerSettings(models=Path("/m"), metrics_port=first), registry)
        try:
            assert first < server.port < first + module.METRICS_PORTS
            with urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=5) as answer:
                assert b"shown 7.0" in answer.read()
        finally:
            server.stop()


def test_no_port_for_the_metrics_is_told(monkeypatch):
    monkeypatch.setattr(module, "METRICS_PORTS", 1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartupError, match=f"no port from {port} to {port} is free for the metrics"):
            metrics_of(ServerSettings(models=Path("/m"), metrics_port=port), CollectorRegistry())
    with pytest.raises(StartupError, match=r"cannot listen on 192\.0\.2\.1:0"):
        metrics_of(ServerSettings(models=Path("/m"), host="192.0.2.1", metrics_port=0), CollectorRegistry())


async def test_the_end():
    ended = []

    async def stop(grace):
        ended.append(grace)
        return True

    made, _ = engine_with()
    made._embedded.stop = stop
    made._settings = ServerSettings(models=Path("/m"), grace_period=3)
    made._opened = SimpleNamespace(close=lambda: ended.append("closed"))
    await made.stop()
    assert ended == [3.0, "closed"]
