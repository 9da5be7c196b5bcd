"""Whether traces are on, by the standard variables of OpenTelemetry.

https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any

from translane_server.observation.call_trace import Tracer

_log = logging.getLogger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")

# The group of entry points in which packages offer exporters, and the names of OTLP's there.
_EXPORTERS = "opentelemetry_traces_exporter"
_OTLP = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}


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
    tracing = _tracing(names, environ) if names else None
    try:
        yield tracing
    finally:
        if tracing:
            tracing.stop()


def _tracing(names: tuple[str, ...], environ: Mapping[str, str]) -> Any:
    try:
        from translane_server.observation.tracing import Tracing
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        return _off(f"{error.name} is not installed; install translane[otel]")
    exporters = []
    for name in names:
        offered = _offered_as(name, environ)
        found = next(iter(entry_points(group=_EXPORTERS, name=offered)), None)
        if found is None:
            return _off(f"no installed package has the exporter {offered!r}")
        try:
            exporters.append(found.load()())
        except Exception as error:  # noqa: BLE001 any error of a package, about a variable that only it reads
            return _off(f"the exporter {offered!r} does not start: {error}")
    try:
        tracing = Tracing(exporters)
    except ValueError as error:
        return _off(str(error))
    _log.info("traces are sent by %s", ", ".join(names))
    return tracing


def _offered_as(name: str, environ: Mapping[str, str]) -> str:
    """Return the name of an exporter's entry point."""
    if name != "otlp":
        return name
    protocol = _first(environ, _PROTOCOLS) or "grpc"
    return _OTLP.get(protocol, f"otlp over {protocol}")


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((value for name in names if (value := environ.get(name, "").strip())), "")


def _off(why: str) -> None:
    _log.warning("traces are off, although OTEL_* variables ask for them: %s", why)
