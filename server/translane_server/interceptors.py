"""Around every RPC: its metrics, its line in the log, and the one place where errors become statuses."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, cast

import grpc
from google.protobuf.message import DecodeError

from translane_server import status
from translane_server.errors import CancelledError, FieldViolation, InvalidRequestError, RequestError
from translane_server.logs import data
from translane_server.metrics import REJECTIONS, Metrics

_log = logging.getLogger(__name__)

# A client cancels its call when its deadline passes, and its clock may be ahead of ours by a little [seconds].
_DEADLINE_TOLERANCE = 0.01

Context = grpc.aio.ServicerContext[Any, Any]
Around = Callable[[Context], AbstractAsyncContextManager[None]]


@dataclass
class Call:
    """An RPC while it is being answered. `facts` is what its method has to say for the log."""

    facts: dict[str, Any] = field(default_factory=dict)


_current_call: ContextVar[Call] = ContextVar("call")


def note(**facts: Any) -> None:
    """Add `facts` to the log line of the call being answered."""
    if call := _current_call.get(None):
        call.facts.update(facts)


@dataclass(frozen=True)
class Method:
    """The labels of a method. Only methods that are registered have labels of their own: a caller cannot make more."""

    kind: str
    service: str
    name: str

    @property
    def labels(self) -> tuple[str, str, str]:
        """In the order of the metrics."""
        return self.kind, self.service, self.name


_UNKNOWN = Method("unary", "unknown", "unknown")

# Stands for a request that could not be parsed.
_MALFORMED = object()


class CallInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs alone
    """Counts, times and logs RPCs, and turns what they raise into statuses."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.perf_counter) -> None:
        self._metrics = metrics
        self._clock = clock

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """See `grpc.aio.ServerInterceptor`."""
        handler = await continuation(handler_call_details)
        if handler is None:  # gRPC itself answers UNIMPLEMENTED
            self._metrics.started.labels(*_UNKNOWN.labels).inc()
            self._metrics.handled.labels(*_UNKNOWN.labels, grpc.StatusCode.UNIMPLEMENTED.name).inc()
            return None
        _, service, name = handler_call_details.method.split("/")
        method = Method(_kind(handler), service, name)
        return _wrapped(handler, lambda context: self._call(method, context))

    @asynccontextmanager
    async def _call(self, method: Method, context: Context) -> AsyncIterator[None]:
        started = self._clock()
        self._metrics.started.labels(*method.labels).inc()
        call = Call()
        _current_call.set(call)
        code = grpc.StatusCode.UNKNOWN
        try:
            yield
            code = cast("grpc.StatusCode | None", context.code()) or grpc.StatusCode.OK
        except grpc.aio.AbortError:
            code = context.code()
            raise
        except (asyncio.CancelledError, GeneratorExit, CancelledError) as error:
            remaining = context.time_remaining()
            late = remaining is not None and remaining <= _DEADLINE_TOLERANCE
            code = grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED
            if isinstance(error, CancelledError):  # nobody listens any more, unless the server is the one who gave up
                await status.abort(context, status.status_of(error))
            raise
        except RequestError as error:
            code = status.CODES[type(error)]
            if error.reason in REJECTIONS:
                self._metrics.rejected.labels(error.reason).inc()
            await status.abort(context, status.status_of(error))
        except Exception:  # noqa: BLE001 whatever it is, the caller must not see it
            code = grpc.StatusCode.INTERNAL
            _log.exception("%s failed", method.name)
            await status.abort(context, status.internal())
        finally:
            seconds = self._clock() - started
            self._metrics.handled.labels(*method.labels, code.name).inc()
            self._metrics.handling.labels(*method.labels).observe(seconds)
            if _log.isEnabledFor(logging.DEBUG):
                milliseconds = round(seconds * 1000, 3)
                facts = {"method": method.name, "code": code.name, "milliseconds": milliseconds, "peer": context.peer()}
                _log.debug("request", extra=data(**facts, **call.facts))


def _kind(handler: Any) -> str:
    if handler.request_streaming:
        return "bidi_stream" if handler.response_streaming else "client_stream"
    return "server_stream" if handler.response_streaming else "unary"


def _wrapped(handler: Any, around: Around) -> Any:
    """`handler` with its behaviour inside `around`. Its behaviour is asynchronous, as all of this server's are."""
    shape = f"{_stream(handler.request_streaming)}_{_stream(handler.response_streaming)}"
    behavior = getattr(handler, shape)

    def deserialize(message: bytes) -> Any:
        try:
            return handler.request_deserializer(message)
        except DecodeError:  # raised here, gRPC would answer it, with the exception's text
            return _MALFORMED

    async def answer(request: Any, context: Context) -> Any:
        async with around(context):
            _check_message(request)
            return await behavior(request, context)

    async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
        async with around(context):
            _check_message(request)
            async for response in behavior(request, context):
                yield response

    make = getattr(grpc, f"{shape}_rpc_method_handler")
    wrapped = stream if inspect.isasyncgenfunction(behavior) else answer
    return make(wrapped, deserialize, handler.response_serializer)


def _check_message(request: Any) -> None:
    if request is _MALFORMED:
        raise InvalidRequestError(FieldViolation("request", "is not a message of this method: it cannot be parsed"))


def _stream(streaming: bool) -> str:
    return "stream" if streaming else "unary"
