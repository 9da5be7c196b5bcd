"""A receiver of spans over OTLP/gRPC, as a collector is one."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Self

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1 import trace_pb2


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as it came, with its resource's attributes. Times are nanoseconds since 1970."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: str
    start: int
    end: int
    status: str
    attributes: dict[str, Any]
    resource: dict[str, Any] = field(repr=False)


class Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    """Listens on a free port of loopback, and keeps what comes.

    Args:
        hangs: whether every export waits until `release`.
    """

    def __init__(self, *, hangs: bool = False) -> None:
        self._spans: list[ReceivedSpan] = []
        self._released = threading.Event()
        if not hangs:
            self._released.set()
        self.exports = 0
        self._server = grpc.server(ThreadPoolExecutor(4))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._server.stop(None).wait()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def spans(self) -> list[ReceivedSpan]:
        """All spans, in the order of their starts."""
        return sorted(self._spans, key=lambda span: (span.start, -span.end))

    def release(self) -> None:
        """Answer the exports that wait."""
        self._released.set()

    def Export(self, request: trace_service_pb2.ExportTraceServiceRequest, context: Any) -> Any:  # noqa: N802
        self.exports += 1
        self._released.wait(30)
        for group in request.resource_spans:
            resource = _attributes(group.resource.attributes)
            self._spans += [_received(span, resource) for scope in group.scope_spans for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()


def tree_of(spans: Sequence[ReceivedSpan]) -> list[str]:
    """The names of spans, each indented below its parent."""
    known = {span.span_id for span in spans}

    def below(parent: str) -> list[str]:
        found = [span for span in spans if span.parent_id == parent or (not parent and span.parent_id not in known)]
        return [line for span in found for line in (span.name, *("  " + each for each in below(span.span_id)))]

    return below("")


def _received(span: trace_pb2.Span, resource: dict[str, Any]) -> ReceivedSpan:
    return ReceivedSpan(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        trace_pb2.Status.StatusCode.Name(span.status.code).removeprefix("STATUS_CODE_"),
        _attributes(span.attributes),
        resource,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
