"""Spans of calls, by OpenTelemetry. Imported only where traces are on.

Names and attributes follow the semantic conventions of RPC spans
(https://opentelemetry.io/docs/specs/semconv/rpc/rpc-spans/). A span holds numbers, names and codes, and never a text.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any
from urllib.parse import unquote

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from translane_server.observation.tracing import SentenceRun

_log = logging.getLogger(__name__)

# Most sentences of a model's span that have spans of their own: those that ended last.
MOST_SENTENCES = 16

# Longest time in which the last spans are sent when the server ends, and in which the exporter closes [seconds].
LAST_SPANS_TIME = 2.0
_CLOSING_TIME = 0.5

_UNNAMED_SERVICE = "unknown_service"  # the SDK's name of a service whose name is not set

# The status codes that are the server's fault, by the semantic conventions.
_FAULTS = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})

# The facts of a call that its span gets. No other fact is recorded: some are texts.
_FACTS = ("model", "texts", "cached_texts", "source_tokens", "target_tokens", "generated_tokens", "reason")

# What callers may send beside their trace. The server uses none of it, and need not read it.
_BAGGAGE = "baggage"

_NANOSECONDS = 1_000_000_000  # of a second


class Tracer:
    """Makes the spans of calls, and sends them in the background.

    Spans wait in a bounded queue. A thread of its own sends them. Where a receiver is slow or away, the oldest spans
    are dropped. The SDK reads `OTEL_*` variables from the environment.

    Raises:
        ValueError: a variable has a value that the SDK refuses.
    """

    def __init__(self, exporters: Sequence[SpanExporter]) -> None:
        self._exporters = exporters
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        for exporter in exporters:
            self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("translane", version("translane"))
        self._propagator = propagate.get_global_textmap()
        self._keys = self._propagator.fields - {_BAGGAGE}

    def begin(self, method: str, metadata: Iterable[tuple[str, str | bytes]], peer: str) -> CallTrace:
        """Begin the span of a call that has just arrived.

        The method has its full name, such as `translane.v1.TranslationService/Translate`. gRPC's keys of metadata are
        in small letters. `peer` is gRPC's name of the connection's other end.
        """
        carrier: dict[str, list[str]] = defaultdict(list)
        for key, value in metadata:
            if key in self._keys and isinstance(value, str):
                carrier[key].append(value)
        parent = self._propagator.extract(carrier, Context()) if carrier else Context()
        return CallTrace(self._tracer, parent, method, peer)

    def stop(self) -> None:
        """Send the last spans, for `LAST_SPANS_TIME` at most, and close."""
        sending = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        sending.start()
        sending.join(LAST_SPANS_TIME)
        if sending.is_alive():
            _log.warning("the last spans are dropped: they were not taken within %g seconds", LAST_SPANS_TIME)
            for exporter in self._exporters:
                exporter.shutdown()
            sending.join(_CLOSING_TIME)


class CallTrace:
    """The span of a call, and those below it, which are made afterwards, from measured times.

    A call that the sampler does not record has ids, and no spans.
    """

    __slots__ = ("_context", "_offset", "_span", "_tracer", "is_recorded")

    def __init__(self, tracer: trace.Tracer, parent: Context, method: str, peer: str) -> None:
        self._tracer = tracer
        now = time.time_ns()
        self._offset = now - time.perf_counter_ns()
        attributes = {"rpc.system.name": "grpc", "rpc.method": method}
        self._span = span = tracer.start_span(method, parent, trace.SpanKind.SERVER, attributes, start_time=now)
        self.is_recorded = span.is_recording()
        if self.is_recorded:
            span.set_attributes(_peer(peer))
            self._context = trace.set_span_in_context(span, parent)

    @property
    def ids(self) -> Mapping[str, str]:
        """`trace_id` and `span_id`, in hexadecimal digits."""
        context = self._span.get_span_context()
        return {"trace_id": trace.format_trace_id(context.trace_id), "span_id": trace.format_span_id(context.span_id)}

    def add(
        self,
        model: str,
        version: str,
        sentences: Sequence[SentenceRun],
        started: float,
        reading: float,
        submitted: float,
        ended: float,
    ) -> None:
        """Record what one model did, in a call that is recorded. Times are in seconds of `time.perf_counter`.

        The request was accepted when it `started`. The model was ready, and began to read the texts, at `reading`.
        Their sentences were `submitted`, and the answer was ready when it `ended`.
        """
        ends = [submitted + sum(sentence[:3]) for sentence in sentences]
        attributes = {
            "translane.model": model,
            "translane.model_version": version,
            "translane.sentences": len(sentences),
        }
        below = self._add(f"model {model}", self._context, started, ended, attributes)
        self._add("read", below, reading, submitted)
        for number in sorted(heapq.nlargest(MOST_SENTENCES, range(len(ends)), key=ends.__getitem__)):
            self._add_sentence(below, number, submitted, sentences[number])
        self._add("build", below, min(max(ends, default=submitted), ended), ended)

    def end(self, code: str, facts: Mapping[str, Any]) -> None:
        """End the call's span. `code` is the name of its status; texts among the `facts` are not recorded."""
        span = self._span
        if self.is_recorded:
            span.set_attribute("rpc.response.status_code", code)
            span.set_attributes({f"translane.{name}": facts[name] for name in _FACTS if name in facts})
            if code in _FAULTS:
                span.set_attribute("error.type", code)
                span.set_status(trace.StatusCode.ERROR)
        span.end(time.perf_counter_ns() + self._offset)

    def _add_sentence(self, above: Context, number: int, submitted: float, run: SentenceRun) -> None:
        encoding = submitted + run.queue
        decoding = encoding + run.encode
        ended = decoding + run.decode
        below = self._add("sentence", above, submitted, ended, {"translane.sentence": number})
        self._add("queue", below, submitted, encoding)
        self._add("encode", below, encoding, decoding, {"translane.source_tokens": run.source_tokens})
        attributes = {
            "translane.steps": run.steps,
            "translane.rows": run.rows,
            "translane.batch_rows": round(run.row_steps / max(run.steps, 1), 1),
            "translane.tokens": run.tokens,
        }
        self._add("decode", below, decoding, ended, attributes)

    def _add(
        self, name: str, above: Context, started: float, ended: float, attributes: dict[str, Any] | None = None
    ) -> Context:
        """Add a span, by times of `time.perf_counter`, and return the context of the spans below it."""
        start, end = (round(seconds * _NANOSECONDS) + self._offset for seconds in (started, ended))
        span = self._tracer.start_span(name, above, attributes=attributes, start_time=start)
        span.end(end)
        return trace.set_span_in_context(span, above)


def _peer(peer: str) -> dict[str, Any]:
    """Return the attributes of the other end of a connection, such as `ipv4:192.0.2.1:50000`."""
    kind, _, rest = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return {"network.transport": "unix"} if kind == "unix" else {}
    host, _, port = unquote(rest).rpartition(":")
    found: dict[str, Any] = {"network.peer.address": host.strip("[]"), "network.transport": "tcp"}
    return found | {"network.peer.port": int(port)} if port.isdecimal() else found


def _resource() -> Resource:
    """Return what all spans say of this server. The environment's names come first."""
    found = Resource.create()
    ours = {SERVICE_NAME: "translane-server", SERVICE_VERSION: version("translane")}
    unnamed = [key for key in ours if str(found.attributes.get(key, _UNNAMED_SERVICE)).startswith(_UNNAMED_SERVICE)]
    return found.merge(Resource({key: ours[key] for key in unnamed}))
