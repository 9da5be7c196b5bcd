"""Counts, times and logs every RPC, and turns its errors into statuses."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any, cast

import grpc
from google.protobuf.message import DecodeError
from prometheus_client import Counter

from translane_server.errors import FieldViolation, InvalidRequestError, RequestError
from translane_server.logs import data
from translane_server.metrics import REJECTIONS, Metrics
from translane_server.rpc import status

_log = logging.getLogger(__name__)

# A client cancels its call at the deadline. The client's clock may be ahead of the server's by this much [seconds].
_DEADLINE_TOLERANCE = 0.01

Context = grpc.aio.ServicerContext[Any, Any]
Clock = Callable[[], float]

# What the current call adds to its line in the log. Set only if calls are logged.
_facts: ContextVar[dict[str, Any]] = ContextVar("facts")

# All methods that are not registered share these labels, so that callers cannot make new labels.
_UNKNOWN = ("unary", "unknown", "unknown")

# Stands for a request that cannot be parsed.
_MALFORMED = object()


def note(**facts: Any) -> None:
    """Add `facts` to the log line of the current call."""
    noted = _facts.get(None)
    if noted is not None:
        noted.update(facts)


class CallInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs alone
    """Counts, times and logs RPCs, and turns their exceptions into statuses."""

    def __init__(self, metrics: Metrics, clock: Clock = time.perf_counter) -> None:
        self._metrics = metrics
        self._clock = clock
        self._handlers: dict[str, Any] = {}  # by path, for registered methods that were called

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        path = handler_call_details.method
        if wrapped := self._handlers.get(path):
            return wrapped
        handler = await continuation(handler_call_details)
        if handler is None:  # gRPC itself answers UNIMPLEMENTED
            self._metrics.started.labels(*_UNKNOWN).inc()
            self._metrics.handled.labels(*_UNKNOWN, grpc.StatusCode.UNIMPLEMENTED.name).inc()
            return None
        _, service, name = path.split("/")
        method = _Method(self._metrics, _kind(handler), service, name)
        wrapped = self._handlers[path] = _wrapped(handler, lambda context: _Call(method, context, self._clock))
        return wrapped


class _Method:
    """The metrics of a registered method, looked up once, because a look-up takes as long as counting."""

    def __init__(self, metrics: Metrics, kind: str, service: str, name: str) -> None:
        self.name = name
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
    """An RPC in progress. It is made when the RPC arrives. Then `answered` or `failed` is called, and last `ended`."""

    def __init__(self, method: _Method, context: Context, clock: Clock) -> None:
        self._method = method
        self._context = context
        self._clock = clock
        self._started = clock()
        self._code = grpc.StatusCode.UNKNOWN
        method.started.inc()
        if _log.isEnabledFor(logging.DEBUG):
            _facts.set({})

    def answered(self) -> None:
        """Note that the method has returned."""
        self._code = cast("grpc.StatusCode | None", self._context.code()) or grpc.StatusCode.OK

    async def failed(self, error: BaseException) -> None:
        """Note that the method has raised `error`, and answer with a status if there is none yet.

        Raises:
            AbortError: the call is answered. If nothing is raised here, `error` must be raised again.
        """
        context = self._context
        if isinstance(error, grpc.aio.AbortError):
            self._code = context.code()
        elif isinstance(error, asyncio.CancelledError | GeneratorExit):
            remaining = context.time_remaining()
            late = remaining is not None and remaining <= _DEADLINE_TOLERANCE
            self._code = grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED
        elif isinstance(error, RequestError):
            self._code = status.CODES[type(error)]
            if error.reason in REJECTIONS:
                self._method.rejected.labels(error.reason).inc()
            await status.abort(context, status.status_of(error))
        elif isinstance(error, Exception):  # a bug, whose details the caller must not see
            self._code = grpc.StatusCode.INTERNAL
            _log.error("%s failed", self._method.name, exc_info=error)
            await status.abort(context, status.internal())

    def ended(self) -> None:
        """Count and log the call."""
        seconds = self._clock() - self._started
        method, code = self._method, self._code
        method.handled(code).inc()
        method.handling.observe(seconds)
        if _log.isEnabledFor(logging.DEBUG):
            milliseconds = round(seconds * 1000, 3)
            facts = {"method": method.name, "code": code.name, "milliseconds": milliseconds}
            _log.debug("request", extra=data(**facts, peer=self._context.peer(), **_facts.get({})))


def _kind(handler: Any) -> str:
    if handler.request_streaming:
        return "bidi_stream" if handler.response_streaming else "client_stream"
    return "server_stream" if handler.response_streaming else "unary"


def _wrapped(handler: Any, begin: Callable[[Context], _Call]) -> Any:
    """Return `handler` with its behaviour wrapped in a call. All behaviours of this server are asynchronous."""
    shape = f"{_stream(handler.request_streaming)}_{_stream(handler.response_streaming)}"
    behavior = getattr(handler, shape)
    parse = handler.request_deserializer

    def deserialize(message: bytes) -> Any:
        try:
            return parse(message)
        except DecodeError:  # if it were raised here, gRPC would answer with the exception's text
            return _MALFORMED

    async def answer(request: Any, context: Context) -> Any:
        call = begin(context)
        try:
            _check_message(request)
            response = await behavior(request, context)
            call.answered()
        except BaseException as error:
            await call.failed(error)
            raise
        else:
            return response
        finally:
            call.ended()

    async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
        call = begin(context)
        try:
            _check_message(request)
            async for response in behavior(request, context):
                yield response
            call.answered()
        except BaseException as error:
            await call.failed(error)
            raise
        finally:
            call.ended()

    make = getattr(grpc, f"{shape}_rpc_method_handler")
    wrapped = stream if inspect.isasyncgenfunction(behavior) else answer
    return make(wrapped, deserialize, handler.response_serializer)


def _check_message(request: Any) -> None:
    if request is _MALFORMED:
        raise InvalidRequestError(FieldViolation("request", "is not a message of this method: it cannot be parsed"))


def _stream(streaming: bool) -> str:
    return "stream" if streaming else "unary"
