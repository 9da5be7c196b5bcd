"""Traces of calls, as a receiver of OTLP gets them over the wire."""

import asyncio
import os
import re
import subprocess
import sys
import time

import grpc
import pytest
from opentelemetry import propagate
from opentelemetry.baggage.propagation import W3CBaggagePropagator

from fakes.serving import serving
from helpers.http_calls import call as request_json
from helpers.http_calls import request
from helpers.otlp_receiver import Receiver, tree_of
from translane.v1 import translation_pb2 as pb
from translane_server.observation import spans as spans_module
from translane_server.observation.tracing import traces, wanted_exporters

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, UNSAMPLED = (("traceparent", f"00-{TRACE}-{PARENT}-{flag}") for flag in ("01", "00"))
OF_A_SENTENCE = ["    sentence", "      queue", "      encode", "      decode"]
SERVICE = "translane.v1.TranslationService"


def tree(method, *models, sentences=1):
    """The lines of the spans of a call, which `models` answer."""
    found = [f"{SERVICE}/{method}"]
    for model in models:
        found += [f"  model {model}", "    read", *OF_A_SENTENCE * sentences, "    build"]
    return found


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def receiver():
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def sent(receiver, monkeypatch):
    """Serves with traces on, lets `call` call, and returns what has been received."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.address)

    async def spans_of(call, **settings):
        with traces(os.environ) as tracer:
            assert tracer
            async with serving(tracer=tracer, **settings) as running:
                await call(running)
        return receiver.spans

    return spans_of


async def refused(call):
    with pytest.raises(grpc.RpcError) as error:
        await call
    return error.value.code()


async def translate(running, *texts, **options):
    return await running.stub.Translate(pb.TranslateRequest(texts=texts), **options)


async def test_a_translation(sent):
    started = time.time_ns()
    spans = await sent(lambda running: translate(running, "xyz", metadata=[SAMPLED]), log_texts=True)
    assert tree_of(spans) == tree("Translate", "fake")
    assert "xyz" not in repr(spans), "texts stay out of spans"
    assert {span.trace_id for span in spans} == {TRACE}
    call, model, *_ = spans
    assert (call.kind, call.parent_id, call.status) == ("SERVER", PARENT, "UNSET")
    assert call.attributes.pop("network.peer.port") > 0
    assert call.attributes == {
        "rpc.system.name": "grpc",
        "rpc.method": f"{SERVICE}/Translate",
        "rpc.response.status_code": "OK",
        "network.transport": "tcp",
        "network.peer.address": "127.0.0.1",
        "translane.model": "fake",
        "translane.texts": 1,
        "translane.source_tokens": 4,
        "translane.generated_tokens": 4,
    }
    assert model.attributes == {
        "translane.model": "fake",
        "translane.model_version": "2.1@0123456789ab",
        "translane.sentences": 1,
    }
    assert spans[0].resource["service.name"] == "translane-server"
    assert spans[0].resource["service.version"]
    of = {span.name: span for span in spans}
    assert of["encode"].attributes == {"translane.source_tokens": 4}
    assert of["decode"].attributes == {
        "translane.steps": 4,  # three characters, and the end of the sentence
        "translane.rows": 1,
        "translane.batch_rows": 1.0,
        "translane.tokens": 4,
    }
    assert started <= call.start <= model.start
    assert model.end <= call.end <= time.time_ns()
    assert of["queue"].end == of["encode"].start
    assert of["encode"].end == of["decode"].start
    assert of["read"].end == of["queue"].start
    for span in spans[2:]:
        assert model.start <= span.start <= span.end <= model.end


async def test_scores(sent):
    async def call(running):
        running.backend.takes_others = True
        pairs = [pb.ScoreInput(source="abc", target="ab"), pb.ScoreInput(source="a", target="abcd")]
        await running.stub.Score(pb.ScoreRequest(inputs=pairs))

    spans = await sent(call)
    assert tree_of(spans) == tree("Score", "fake", sentences=2)
    assert spans[0].attributes["translane.target_tokens"] == 8
    assert sorted(span.attributes["translane.steps"] for span in spans if span.name == "decode") == [3, 5]


async def test_of_many_sentences_the_last_ones_have_spans(sent, monkeypatch):
    monkeypatch.setattr(spans_module, "MOST_SENTENCES", 2)
    spans = await sent(lambda running: translate(running, "abcdefghi", "a", "bcdefghij", "c"), rows=8)
    assert tree_of(spans) == tree("Translate", "fake", sentences=2)
    assert [span.attributes["translane.sentence"] for span in spans if span.name == "sentence"] == [0, 2]
    assert spans[1].attributes["translane.sentences"] == 4


async def test_a_refused_request(sent):
    spans = await sent(lambda running: refused(translate(running)))
    assert tree_of(spans) == [f"{SERVICE}/Translate"]
    (span,) = spans
    assert span.status == "UNSET"  # the caller's fault
    assert span.attributes["rpc.response.status_code"] == "INVALID_ARGUMENT"
    assert span.attributes["translane.reason"] == "INVALID_FIELD"
    assert "error.type" not in span.attributes


async def test_a_fault_of_the_server(sent):
    async def call(running):
        running.backend.fail_at_step = 1
        assert await refused(translate(running, "abc")) is grpc.StatusCode.INTERNAL

    (span,) = await sent(call)
    assert span.status == "ERROR"
    assert span.attributes["rpc.response.status_code"] == span.attributes["error.type"] == "INTERNAL"


async def test_probes_and_unknown_methods_have_no_spans(sent):
    async def call(running):
        await refused(running.channel.unary_unary("/translane.v1.TranslationService/Nothing")(b""))
        await running.channel.unary_unary("/grpc.health.v1.Health/Check")(b"", metadata=[SAMPLED])

    assert await sent(call) == []


@pytest.mark.parametrize(("parent", "sampler"), [(UNSAMPLED, "parentbased_always_on"), (SAMPLED, "always_off")])
async def test_what_the_caller_or_the_environment_does_not_sample(sent, monkeypatch, parent, sampler):
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    assert await sent(lambda running: translate(running, "abc", metadata=[parent])) == []


async def test_the_parent_of_a_call_over_http(sent):
    async def call(running):
        given = {"traceparent": SAMPLED[1]}
        answer = await request_json(running.server.http_port, "Translate", {"texts": ["abc"]}, given)
        assert answer.status == 200

    spans = await sent(call, http_port=0)
    assert tree_of(spans) == tree("Translate", "fake")
    assert {span.trace_id for span in spans} == {TRACE}
    assert spans[0].parent_id == PARENT


async def test_baggage_is_not_read(sent, monkeypatch):
    read = []
    monkeypatch.setattr(W3CBaggagePropagator, "extract", lambda _self, carrier, *_others: read.append(carrier))
    monkeypatch.setattr(propagate, "get_global_textmap", W3CBaggagePropagator)
    await sent(lambda running: translate(running, "abc", metadata=[("baggage", "a=b")]))
    assert read == []


async def test_histograms_of_requests_have_exemplars(sent):
    found = []

    async def call(running):
        await translate(running, "abc", metadata=[SAMPLED])
        accepted = {"accept": "application/openmetrics-text; version=1.0.0"}
        scrape = await request(running.server.metrics_port, "GET", "/metrics", headers=accepted)
        found.append(scrape.body.decode())

    spans = await sent(call)
    exemplar = re.escape(f'# {{span_id="{spans[0].span_id}",trace_id="{TRACE}"}}')
    for name in ("grpc_server_handling_seconds", "translane_request_duration_seconds"):
        assert re.search(rf"^{name}_bucket{{.*}} 1\.0 {exemplar}", found[0], re.MULTILINE), name


async def test_a_slow_receiver_slows_nothing(monkeypatch):
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "16")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "8")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    monkeypatch.setattr(spans_module, "LAST_SPANS_TIME", 0.1)
    with Receiver(hangs=True) as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.address)
        with traces(os.environ) as tracer:
            async with serving(tracer=tracer) as running:
                for _ in range(20):
                    await asyncio.wait_for(translate(running, "abc"), 5)
        assert receiver.exports <= 1
        assert receiver.spans == []


async def test_a_receiver_that_is_away_stops_nothing(monkeypatch, caplog):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setattr(spans_module, "LAST_SPANS_TIME", 0.1)
    with traces(os.environ) as tracer:
        async with serving(tracer=tracer) as running:
            await asyncio.wait_for(translate(running, "abc"), 5)
    assert "the last spans are dropped" in caplog.text


@pytest.mark.parametrize(
    ("environ", "names"),
    [
        ({}, ()),
        ({"OTEL_SERVICE_NAME": "x"}, ()),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4317"}, ("otlp",)),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x:4317"}, ("otlp",)),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, ("otlp",)),
        ({"OTEL_TRACES_EXPORTER": "otlp, console,otlp"}, ("otlp", "console")),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4317"}, ()),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": " True"}, ()),
    ],
)
def test_when_traces_are_on(environ, names):
    assert wanted_exporters(environ) == names


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "no installed package has the exporter 'zipkin'"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "smoke"}, "the exporter 'otlp over smoke'"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_TIMEOUT": "soon"}, "does not start: .*soon"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_BSP_MAX_QUEUE_SIZE": "0"}, "max_queue_size"),
    ],
)
def test_what_cannot_be_is_a_warning(environ, why, monkeypatch, caplog):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with traces(environ) as tracer:
        assert tracer is None
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert re.search(f"traces are off, .*: .*{why}", record.getMessage())


def test_without_the_extra_there_is_a_warning(monkeypatch, caplog):
    monkeypatch.delitem(sys.modules, "translane_server.observation.spans")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with traces({"OTEL_TRACES_EXPORTER": "otlp"}) as tracer:
        assert tracer is None
    assert "install translane[otel]" in caplog.text


def test_without_variables_nothing_of_opentelemetry_is_imported():
    check = """
import sys
from translane_server.app.lifetime import run
from translane_server.observation.tracing import traces
with traces({}) as tracer:
    assert tracer is None
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    found = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
