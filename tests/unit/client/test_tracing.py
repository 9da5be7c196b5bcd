"""The spans of the client's calls, and what the server is told of them."""

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from unit.client.fake_server import FakeServer, answer, fails

from helpers.file_server import wait_until
from translane import AsyncClient, Client, InvalidArgument, RetryPolicy

TRANSLATE = "translane.v1.TranslationService/Translate"


@pytest.fixture
def exporter(monkeypatch):
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return exporter


@pytest.fixture
def parents(server: FakeServer):
    """The `traceparent` of each call that the server gets."""
    found = []

    def answering(request, context):
        found.append(dict(context.invocation_metadata()).get("traceparent"))
        return answer(request)

    server.always = answering
    return found


def parent_of(span):
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def spans_of(exporter, count):
    """The finished spans: a call's span ends in a thread of gRPC, some moments after the answer."""
    wait_until(lambda: len(exporter.get_finished_spans()) >= count)
    return exporter.get_finished_spans()


def test_a_call_has_a_span_that_the_server_is_told(server: FakeServer, connect, exporter, parents):
    connect(server.address).translate("x")
    (span,) = spans_of(exporter, 1)
    assert (span.name, span.kind, span.status.is_ok) == (TRANSLATE, trace.SpanKind.CLIENT, True)
    host, _, port = server.address.rpartition(":")
    assert dict(span.attributes) == {
        "rpc.system.name": "grpc",
        "rpc.method": TRANSLATE,
        "rpc.response.status_code": "OK",
        "server.address": host,
        "server.port": int(port),
    }
    assert parents[0].split("-")[1:3] == parent_of(span).split("-")[1:3]


def test_calls_of_many_texts_are_below_the_span_of_the_program(server: FakeServer, exporter, parents):
    with Client(server.address, batch_size=2) as client:
        with trace.get_tracer("program").start_as_current_span("program") as program:
            client.translate([f"{number}" for number in range(6)])
        check_parents(exporter, parents, program)


async def test_so_are_those_of_asyncio(server: FakeServer, exporter, parents):
    async with AsyncClient(server.address, batch_size=2) as client:
        with trace.get_tracer("program").start_as_current_span("program") as program:
            await client.translate([f"{number}" for number in range(6)])
        check_parents(exporter, parents, program)


def check_parents(exporter, parents, program):
    spans = [span for span in spans_of(exporter, 4) if span.name == TRANSLATE]
    assert len(spans) == len(parents) == 3
    assert {span.parent.span_id for span in spans} == {program.get_span_context().span_id}


def test_each_attempt_has_a_span(server: FakeServer, connect, exporter, time):
    failing = fails(grpc.StatusCode.UNAVAILABLE)
    calls = []

    def at_first(request, context):
        calls.append(1)
        return failing(request, context) if len(calls) == 1 else answer(request)

    server.always = at_first
    connect(server.address, retry=RetryPolicy(initial=0.0)).translate("x")
    first, second = spans_of(exporter, 2)
    assert first.attributes["error.type"] == first.attributes["rpc.response.status_code"] == "UNAVAILABLE"
    assert not first.status.is_ok
    assert second.attributes["rpc.response.status_code"] == "OK"


def test_an_error(server: FakeServer, connect, exporter):
    server.always = fails(grpc.StatusCode.INVALID_ARGUMENT)
    with pytest.raises(InvalidArgument):
        connect(server.address).translate("x")
    (span,) = spans_of(exporter, 1)
    assert span.attributes["error.type"] == "INVALID_ARGUMENT"


def test_a_stream_that_is_left_early(server: FakeServer, connect, exporter):
    server.always = server.hang_after(1)
    with connect(server.address).translate_stream("x") as stream:
        next(iter(stream))
    (span,) = spans_of(exporter, 1)
    assert span.name.endswith("/TranslateStream")
    assert span.attributes["rpc.response.status_code"] == "CANCELLED"


def test_without_an_sdk_the_context_goes_on(server: FakeServer, parents):
    above = trace.SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=trace.TraceFlags(1))
    with Client(server.address) as client:
        with trace.use_span(trace.NonRecordingSpan(above)):
            client.translate("x")
        client.translate("x")
    assert parents == [parent_of(trace.NonRecordingSpan(above)), None]
