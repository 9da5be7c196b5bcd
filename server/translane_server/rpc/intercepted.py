"""Methods and their calls, as the interceptor sees them: what is counted, timed, logged and answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

import grpc
from prometheus_client import Counter

from translane_server.access.key_ring import Admission, KeyRing, Metadata
from translane_server.errors import RequestError
from translane_server.observation.access_log import is_logged, log_call
from translane_server.observation.call_trace import CallTrace, Tracer, exemplar, set_current_trace
from translane_server.observation.metrics import REJECTIONS, Metrics
from translane_server.rpc import status
from translane_server.rpc.callers import CallerOf
from translane_server.rpc.current_call import caller, facts, gather_facts, identify, note
from translane_server.rpc.forwarded import PeerOf
from translane_server.rpc.open_calls import OpenCall, OpenCalls

_log = logging.getLogger(__name__)

# A client cancels its call at the deadline. The client's clock may be ahead of the server's by this much [seconds].
_DEADLINE_TOLERANCE = 0.01

# Calls of these services are traced. Probes and reflection would drown them.
_TRACED = "translane."

Context = grpc.aio.ServicerContext[Any, Any]
Clock = Callable[[], float]


class InterceptedMethod:
    """The metrics of a registered method, looked up once, because a look-up takes as long as counting."""

    def __init__(
        self,
        metrics: Metrics,
        kind: str,
        service: str,
        name: str,
        *,
        probe: bool = False,
        endless: bool = False,
        keys: KeyRing | None = None,
    ) -> None:
        self.name = name
        self.full_name = f"{service}/{name}"
        self.traced = service.startswith(_TRACED)
        self.keys = keys
        self.probe = probe
        self.endless = endless
        self.rejected = metrics.rejected
        self.started = metrics.started.labels(kind, service, name)
        self.handling = metrics.handling.labels(kind, service, name)
        self._metrics = metrics
        self._labels = (kind, service, name)
        self._handled: dict[grpc.StatusCode, Counter] = {}

    def handled(self, code: grpc.StatusCode) -> Counter:
        """Return the counter of calls that were answered with `code`."""
        if code not in self._handled:
            self._handled[code] = self._metrics.handled.labels(*self._labels, code.name)
        return self._handled[code]


class InterceptedCall:
    """An RPC in progress. It is made when the RPC arrives. `handlers.Call` tells the order of its methods."""

    def __init__(
        self,
        method: InterceptedMethod,
        context: Context,
        open_calls: OpenCalls,
        caller_of: CallerOf,
        clock: Clock,
        tracer: Tracer | None,
        peer_of: PeerOf,
    ) -> None:
        self._method = method
        self._context = context
        self._open_calls = open_calls
        self._caller_of = caller_of
        self._clock = clock
        self._peer_of = peer_of
        self._started = clock()
        self._code = grpc.StatusCode.UNKNOWN
        self._open: OpenCall | None = None
        self._trace: CallTrace | None = None
        self._admission: Admission | None = None
        method.started.inc()
        if tracer:
            self._trace = tracer.begin(method.full_name, context.invocation_metadata() or (), peer_of(context))
            set_current_trace(self._trace)
        if is_logged(is_probe=not method.traced) or (self._trace and self._trace.is_recorded):
            gather_facts()

    def enter(self) -> None:
        """Admit the call by its key, if callers need one, and count it as open.

        Raises:
            RequestError: the call's key is not accepted, or too many calls are open.
        """
        method, context = self._method, self._context
        if method.keys:
            metadata = cast("Metadata", context.invocation_metadata() or ())
            admission = method.keys.admit(metadata, self._peer_of(context))
            self._admission = admission
            name = admission.name
            identify(name, admission.account)
            note(key=name)
        else:
            name = self._caller_of(context)
            identify(name, None)
        self._open = self._open_calls.enter(name, context.peer(), probe=method.probe, endless=method.endless)

    async def receive(self) -> bytes:
        """Return the call's first message.

        Raises:
            RequestError: the call is refused.
        """
        assert self._open is not None
        return await self._open_calls.first_message(self._open, self._context)

    async def receive_next(self) -> bytes | None:
        """Return another message; None if there is none.

        Raises:
            RequestError: the call is refused.
        """
        assert self._open is not None
        return await self._open_calls.next_message(self._open, self._context)

    async def write(self, message: Any) -> None:
        """Send a message to the caller.

        Raises:
            RequestTimeoutError: the call has taken too long.
        """
        assert self._open is not None
        await self._open.write(self._context, message)

    def answered(self) -> None:
        """Note that the method has returned."""
        self._code = cast("grpc.StatusCode | None", self._context.code()) or grpc.StatusCode.OK

    async def failed(self, error: BaseException) -> None:
        """Note that the method has raised `error`, and answer with a status if there is none yet.

        Raises:
            AbortError: the call is answered. If nothing is raised here, `error` must be raised again.
        """
        context = self._context
        if self._open:
            self._open_calls.finished(self._open)
            if self._open.refusal and isinstance(error, asyncio.CancelledError):
                error = self._open.refusal
        if isinstance(error, grpc.aio.AbortError):
            self._code = context.code()
        elif isinstance(error, asyncio.CancelledError | GeneratorExit | grpc.aio.InternalError):  # the caller has gone
            remaining = context.time_remaining()
            late = remaining is not None and remaining <= _DEADLINE_TOLERANCE
            self._code = grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED
        elif isinstance(error, RequestError):
            self._code = status.CODES[type(error)]
            if error.reason in REJECTIONS:
                self._method.rejected.labels(error.reason).inc()
                if self._admission:
                    self._admission.count_refusal(error.reason)
            if self._trace:
                self._trace.refused(error.reason)
            await status.abort(context, status.status_of(error))
        elif isinstance(error, Exception):  # a bug, whose details the caller must not see
            self._code = grpc.StatusCode.INTERNAL
            _log.error("%s failed", self._method.name, exc_info=error)
            await status.abort(context, status.internal())

    def ended(self) -> None:
        """Count and log the call."""
        if self._admission:
            self._admission.account.close()
        if self._open:
            self._open_calls.finished(self._open)
        seconds = self._clock() - self._started
        method, code = self._method, self._code
        method.handled(code).inc()
        method.handling.observe(seconds, exemplar() if self._trace else None)
        if is_logged(is_probe=not method.traced):
            size = self._open.size if self._open else 0
            peer = self._peer_of(self._context)
            log_call(method.name, code.name, seconds, caller() or peer, size, peer, facts())
        if self._trace:
            self._trace.end(code.name, facts())
