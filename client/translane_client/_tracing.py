"""The spans of the client's calls, where the program that calls has loaded OpenTelemetry.

The client imports nothing of OpenTelemetry that the program has not imported before: a program without traces takes no
time for them. Names and attributes follow the semantic conventions of RPC spans
(https://opentelemetry.io/docs/specs/semconv/rpc/rpc-spans/).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any

_LOADED_BY_PROGRAMS = "opentelemetry.trace"

Metadata = Sequence[tuple[str, str | bytes]]


def traced(method: Any, name: str, address: str) -> Any:
    """Returns a stub's method whose calls have spans and tell the server of them; `method` itself without traces.

    Args:
        method: A method of a stub over a channel of grpc or grpc.aio.
        name: The method's full name, such as `translane.v1.TranslationService/Translate`.
        address: Address of the server.
    """
    return _TracedMethod(method, name, address) if _LOADED_BY_PROGRAMS in sys.modules else method


def in_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that runs, in any thread, below the span that is current now."""
    if _LOADED_BY_PROGRAMS not in sys.modules:
        return function
    context = copy_context()
    return lambda *arguments: context.run(function, *arguments)


class _TracedMethod:
    """A method of a stub. Each call has a span, and an attempt that is repeated is a call of its own."""

    def __init__(self, method: Any, name: str, address: str) -> None:
        self._method = method
        self._name = name
        self._address = address

    def __call__(self, request: Any, *, timeout: float | None = None, metadata: Metadata | None = None) -> Any:
        return self._begin(self._method, request, timeout, metadata)

    def future(self, request: Any, *, timeout: float | None = None, metadata: Metadata | None = None) -> Any:
        """Begins a call without waiting for it."""
        return self._begin(self._method.future, request, timeout, metadata)

    def _begin(self, begin: Any, request: Any, timeout: float | None, metadata: Metadata | None) -> Any:
        from opentelemetry import propagate, trace

        # Where the program has no SDK, the span is not recorded, and has the ids of the span above it.
        tracer = trace.get_tracer("translane")
        span = tracer.start_span(self._name, kind=trace.SpanKind.CLIENT, attributes=self._attributes())
        context: dict[str, str] = {}
        propagate.inject(context, trace.set_span_in_context(span))
        told = [(key.lower(), value) for key, value in context.items()]
        try:
            call = begin(request, timeout=timeout, metadata=(*(metadata or ()), *told))
            call.add_done_callback(lambda _call: _end(span, _code_of(call)))
        except BaseException:
            _end(span, "CANCELLED")
            raise
        return call

    def _attributes(self) -> dict[str, Any]:
        attributes: dict[str, Any] = {"rpc.system.name": "grpc", "rpc.method": self._name}
        host, _, port = self._address.rpartition(":")
        if port.isdecimal():
            return attributes | {"server.address": host.strip("[]"), "server.port": int(port)}
        return attributes | {"server.address": self._address}


def _code_of(call: Any) -> str:
    """Returns the name of the status of a call that has ended."""
    code = call.code()
    if inspect.iscoroutine(code):  # of grpc.aio, which has nothing to wait for any more
        try:
            code.send(None)
        except StopIteration as end:
            code = end.value
        else:
            code.close()
            return "UNKNOWN"
    return str(code.name)


def _end(span: Any, code: str) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute("rpc.response.status_code", code)
    if code != "OK":
        span.set_attribute("error.type", code)
        span.set_status(StatusCode.ERROR)
    span.end()
