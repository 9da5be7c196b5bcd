"""Counts, times and logs every RPC, and turns its errors into statuses."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import grpc

from translane_server.access.key_ring import KeyRing
from translane_server.api.callers import CallerOf, caller_naming
from translane_server.api.forwarded import PeerOf, peer_of_connection
from translane_server.api.handlers import kind, reading_handler, refusing_handler
from translane_server.api.intercepted import Clock, Context, InterceptedCall, InterceptedMethod
from translane_server.api.open_calls import CallLimits, OpenCalls
from translane_server.errors import UnknownMethodError
from translane_server.observation.call_trace import Tracer
from translane_server.observation.metrics import Metrics

# All methods that are not registered share these labels, so that callers cannot make new labels.
_UNKNOWN = ("unary", "unknown", "unknown")

# The method that probes call. It is answered beside the limit of calls.
_PROBED = "/grpc.health.v1.Health/Check"
# The method that reports every change of health, for as long as the caller wants. It has no longest time.
_ENDLESS = "/grpc.health.v1.Health/Watch"
# The methods that need no key: who asks for the health of a server may have none.
_OPEN = (_PROBED, _ENDLESS)


class CallInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs alone
    """Limits, counts, times and logs RPCs, and turns their exceptions into statuses.

    Args:
        metrics: takes what is counted and timed.
        limits: limits of the calls that are open together.
        caller_of: names the caller of a call.
        clock: seconds, monotonic.
        tracer: begins the spans of calls; None if calls are not traced.
        keys: the keys that callers need, but for health checks; None if they need none.
        peer_of: names the other end of a call.
    """

    def __init__(
        self,
        metrics: Metrics,
        limits: CallLimits,
        caller_of: CallerOf | None = None,
        clock: Clock = time.perf_counter,
        tracer: Tracer | None = None,
        keys: KeyRing | None = None,
        peer_of: PeerOf = peer_of_connection,
    ) -> None:
        self._metrics = metrics
        self._tracer = tracer
        self._keys = keys
        self._caller_of = caller_of or caller_naming()
        self._peer_of = peer_of
        self._clock = clock
        self._handlers: dict[str, Any] = {}  # by path, for registered methods that were called
        self.open_calls = OpenCalls(limits)
        unknown = InterceptedMethod(metrics, *_UNKNOWN, keys=keys)
        self._unknown = refusing_handler(partial(self._begin, unknown), UnknownMethodError("there is no such method"))

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        path = handler_call_details.method
        if wrapped := self._handlers.get(path):
            return wrapped
        handler = await continuation(handler_call_details)
        if handler is None:
            return self._unknown
        _, service, name = path.split("/")
        method = InterceptedMethod(
            self._metrics,
            kind(handler),
            service,
            name,
            probe=path == _PROBED,
            endless=path == _ENDLESS,
            keys=None if path in _OPEN else self._keys,
        )
        wrapped = self._handlers[path] = reading_handler(handler, partial(self._begin, method))
        return wrapped

    def _begin(self, method: InterceptedMethod, context: Context) -> InterceptedCall:
        tracer = self._tracer if method.traced else None
        return InterceptedCall(method, context, self.open_calls, self._caller_of, self._clock, tracer, self._peer_of)
