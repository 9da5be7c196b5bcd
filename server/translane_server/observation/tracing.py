"""The trace of the current call, as the rest of the server sees it, and whether traces are on.

The standard variables of OpenTelemetry say that. Nothing of OpenTelemetry is imported where traces are off.
https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from translane_server.observation.spans import CallTrace as CallTrace
    from translane_server.observation.spans import Tracer as Tracer
else:  # nothing of OpenTelemetry is imported where traces are off
    CallTrace = Tracer = Any

_log = logging.getLogger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")

# The group of entry points in which packages offer exporters, and the names of OTLP's there.
_EXPORTERS = "opentelemetry_traces_exporter"
_OTLP = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}


class SentenceRun(NamedTuple):
    """How a sentence was decoded: its times in each phase [seconds], and numbers."""

    queue: float  # waiting for a row
    encode: float  # the encoder run
    decode: float  # from the row to the last token
    steps: int  # decoder steps in which the sentence took part
    row_steps: int  # sum of the rows of these steps, those of other sentences included
    source_tokens: int
    rows: int  # most rows that the sentence takes
    tokens: int  # of its hypotheses


current_trace: ContextVar[CallTrace | None] = ContextVar("current_trace", default=None)
"""The trace of the current call, set in the call's own task; None where calls are not traced."""


def trace_ids() -> Mapping[str, str]:
    """Return the ids that a log line of the current call has; empty where calls are not traced."""
    trace = current_trace.get()
    return trace.ids if trace else {}


def wanted_exporters(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the exporters that the environment asks for; empty if traces are off.

    Traces are on if `OTEL_TRACES_EXPORTER` names an exporter, or if it is not set and there is an endpoint of OTLP.
    """
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ()
    asked = environ.get("OTEL_TRACES_EXPORTER", "").strip()
    if not asked:
        asked = "otlp" if _first(environ, _ENDPOINTS) else "none"
    return tuple(dict.fromkeys(name for each in asked.split(",") if (name := each.strip()) not in ("", "none")))


@contextmanager
def traces(environ: Mapping[str, str]) -> Iterator[Tracer | None]:
    """Give the tracer that the environment asks for; None if traces are off. Leaving the context sends the last spans.

    Tracing keeps no server from translating. Where the variables are wrong, or a package is missing, a warning says so,
    and traces are off.
    """
    names = wanted_exporters(environ)
    tracer = None
    try:
        if names:
            tracer = _tracer(names, environ)
            _log.info("traces are sent by %s", ", ".join(names))
    except ValueError as error:
        _log.warning("traces are off, although OTEL_* variables ask for them: %s", error)
    try:
        yield tracer
    finally:
        if tracer:
            tracer.stop()


def _tracer(names: tuple[str, ...], environ: Mapping[str, str]) -> Tracer:
    """Make what makes spans. ValueError: a package is missing, or a variable is wrong."""
    try:
        from translane_server.observation.spans import Tracer
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise ValueError(f"{error.name} is not installed; install translane[otel]") from None
    protocol = _first(environ, _PROTOCOLS) or "grpc"
    exporters = []
    for name in names:
        offered = _OTLP.get(protocol, f"otlp over {protocol}") if name == "otlp" else name
        found = next(iter(entry_points(group=_EXPORTERS, name=offered)), None)
        if found is None:
            raise ValueError(f"no installed package has the exporter {offered!r}")
        try:
            exporters.append(found.load()())
        except Exception as error:  # any error of a package, about a variable that only it reads
            raise ValueError(f"the exporter {offered!r} does not start: {error}") from error
    return Tracer(exporters)


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((value for name in names if (value := environ.get(name, "").strip())), "")
