"""The client in a program that instruments gRPC with OpenTelemetry."""

from collections import deque

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fakes.translation_server import UNAVAILABLE, FakeServer, answer_to
from helpers.file_server import wait_until
from translane import RetryPolicy

instrumentation = pytest.importorskip("opentelemetry.instrumentation.grpc")


@pytest.fixture
def provider(monkeypatch):
    provider = TracerProvider(shutdown_on_exit=False)
    monkeypatch.setattr(trace, "get_tracer", lambda *_, **__: provider.get_tracer("tests"))
    instrumentors = (instrumentation.GrpcInstrumentorClient(), instrumentation.GrpcAioInstrumentorClient())
    for instrumentor in instrumentors:
        instrumentor.instrument()
    yield provider
    for instrumentor in instrumentors:
        instrumentor.uninstrument()


@pytest.fixture
def spans(provider):
    """The finished spans: a call's span ends in a thread of gRPC, some moments after the answer."""
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    def finished(count: int):
        wait_until(lambda: len(exporter.get_finished_spans()) >= count)
        return exporter.get_finished_spans()

    return finished


@pytest.fixture
def told(server: FakeServer):
    """The span that each call told the server of; the first call is refused."""
    found, refusals = [], deque([UNAVAILABLE])

    def answering(request, context):
        parent = dict(context.invocation_metadata())["traceparent"]
        found.append(int(parent.split("-")[2], 16))
        return refusals.popleft()(request, context) if refusals else answer_to(request)

    server.always = answering
    return found


@pytest.mark.parametrize("texts", ["a", ["a"] * 6])
def test_each_attempt_has_a_span_that_the_server_is_told(server, provider, connect, spans, told, texts):
    client = connect(server.address, batch_size=2, retry=RetryPolicy(initial=0.0))
    with provider.get_tracer("program").start_as_current_span("program") as program:
        client.translate(texts)
    count = 2 if texts == "a" else 4
    calls = [span for span in spans(count + 1) if span.kind is trace.SpanKind.CLIENT]
    assert [span.parent.span_id for span in calls] == [program.get_span_context().span_id] * count
    assert {span.context.span_id for span in calls} == set(told)
    assert sorted(span.status.is_ok for span in calls) == [False, *[True] * (count - 1)]
