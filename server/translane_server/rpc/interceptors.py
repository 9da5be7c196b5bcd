"""Counts, times and logs every RPC, and turns its errors into statuses."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, cast

import grpc
from prometheus_client import Counter

from translane_server.access.allowances import Account
from translane_server.access.key_ring import Admission, KeyRing, Metadata
from translane_server.errors import RequestError, UnknownMethodError
from translane_server.observation.call_trace import CallTrace, Tracer, exemplar, set_current_trace
from translane_server.observation.logs import data
from translane_server.observation.metrics import REJECTIONS, Metrics
from translane_server.rpc import status
from translane_server.rpc.callers import CallerOf, caller_naming
from translane_server.rpc.forwarded import PeerOf, peer_of_connection
from translane_server.rpc.handlers import kind, reading_handler, refusing_handler
from translane_server.rpc.open_calls import CallLimits, OpenCall, OpenCalls

_log = logging.getLogger(__name__)

# A client cancels its call at the deadline. The client's clock may be ahead of the server's by this much [seconds].
_DEADLINE_TOLERANCE = 0.01

Context = grpc.aio.ServicerContext[Any, Any]
Clock = Callable[[], float]

# What the current call adds to its line in the log, and to its span. Set only if the call is logged or recorded.
_facts: ContextVar[dict[str, Any]] = ContextVar("facts")

# Who makes the current call.
_caller: ContextVar[str] = ContextVar("caller", default="")

# What the current call takes of the allowance of its key; None if callers need no keys, or nothing is to be counted.
_account: ContextVar[Account | None] = ContextVar("account", default=None)

# All methods that are not registered share these labels, so that callers cannot make new labels.
_UNKNOWN = ("unary", "unknown", "unknown")

# Calls of these services are traced. Probes and reflection would drown them.
_TRACED = "translane."

# The method that probes call. It is answered beside the limit of calls.
_PROBED = "/grpc.health.v1.Health/Check"
# The method that reports every change of health, for as long as the caller wants. It has no longest time.
_ENDLESS = "/grpc.health.v1.Health/Watch"
# The methods that need no key: who asks for the health of a server may have none.
_OPEN = (_PROBED, _ENDLESS)


def caller() -> str:
    """Return who makes the current call; see `callers`."""
    return _caller.get()


def pay(sentences: int) -> None:
    """Take sentences of the current call from the allowance of its key.

    Raises:
        TooManySentencesError: too many sentences of the key are in flight.
        SentenceRateError: too many sentences of the key came lately.
        InvalidRequestError: the key can never have so many sentences in flight.
    """
    if account := _account.get():
        account.pay(sentences)


@contextmanager
def unpaid() -> Iterator[None]:
    """Let `pay` take nothing, because the sentences of a step were paid for in the step before."""
    token = _account.set(None)
    try:
        yield
    finally:
        _account.reset(token)


def note(**facts: Any) -> None:
    """Add `facts` to the log line and the span of the current call."""
    noted = _facts.get(None)
    if noted is not None:
        noted.update(facts)


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
        unknown = _Method(metrics, *_UNKNOWN, keys=keys)
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
        method = _Method(
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

    def _begin(self, method: _Method, context: Context) -> _Call:
        tracer = self._tracer if method.traced else None
        return _Call(method, context, self.open_calls, self._caller_of, self._clock, tracer, self._peer_of)


class _Method:
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


class _Call:
    """An RPC in progress. It is made when the RPC arrives. `handlers.Call` tells the order of its methods."""

    def __init__(
        self,
        method: _Method,
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
        if _log.isEnabledFor(logging.DEBUG) or (self._trace and self._trace.is_recorded):
            _facts.set({})

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
            _account.set(admission.account)
            note(key=name)
        else:
            name = self._caller_of(context)
        _caller.set(name)
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
        if _log.isEnabledFor(logging.DEBUG):
            milliseconds = round(seconds * 1000, 3)
            facts = {"method": method.name, "code": code.name, "milliseconds": milliseconds}
            _log.debug("request", extra=data(**facts, peer=self._peer_of(self._context), **_facts.get({})))
        if self._trace:
            self._trace.end(code.name, _facts.get({}))
