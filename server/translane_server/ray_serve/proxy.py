"""What Serve's gRPC proxy does with the calls of translane.v1.TranslationService.

Serve's configuration names `add_translation_service` among its `grpc_servicer_functions`. The function that protobuf
generates has three faults: it parses each message, which the proxy only passes on; it tells an engine nothing of a
call's deadline; and a lost engine becomes an INTERNAL error, after which no client tries again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc
from grpc_status import rpc_status

from translane.v1 import translation_pb2 as pb
from translane.v1.translation_pb2_grpc import add_TranslationServiceServicer_to_server
from translane_server.api.status import status_of
from translane_server.core.errors import RequestError, UnavailableError
from translane_server.ray_serve.calls import ATTEMPTS, REMAINING, RETRY_AFTER, engines_lost, queue_full

_log = logging.getLogger(__name__)

_SERVICE = pb.DESCRIPTOR.services_by_name["TranslationService"]

# Where gRPC has the details of a status: https://grpc.io/docs/guides/error/#richer-error-model.
_DETAILS = "grpc-status-details-bin"

# The time before a call is sent to an engine once more, for each attempt before [seconds].
_PAUSE = 0.1

# How Serve's own text begins where it has no room for a call. Others refuse calls with the same code.
_NO_ROOM = "Request dropped due to backpressure"

_INTERNAL: int = grpc.StatusCode.INTERNAL.value[0]
_UNAVAILABLE: int = grpc.StatusCode.UNAVAILABLE.value[0]
_EXHAUSTED: int = grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]

_Unary = Callable[[bytes, Any], Awaitable[bytes]]
_Stream = Callable[[bytes, Any], AsyncGenerator[bytes, None]]


def add_translation_service(servicer: Any, server: Any) -> None:
    """Add the service to Serve's gRPC server, which sends its calls to the ingress deployment.

    Args:
        servicer: stands in for a servicer, and is never called.
        server: Serve's `gRPCGenericServer`. If it is another one than of Ray 2.60, the service is added as protobuf
            generates it.
    """
    try:
        from ray.serve._private.proxy_request_response import gRPCStreamingType

        make, add_directly = server.service_handler_factory, server.add_passthrough_service
    except (ImportError, AttributeError):
        _log.warning("this version of Ray Serve is not known: deadlines and lost engines are not told")
        add_TranslationServiceServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
        return
    handlers = {}
    for method in _SERVICE.methods:
        path = f"/{_SERVICE.full_name}/{method.name}"
        if method.server_streaming:
            stream = make(service_method=path, streaming_type=gRPCStreamingType.UNARY_STREAM)
            handlers[method.name] = grpc.unary_stream_rpc_method_handler(streaming(stream))
        else:
            unary = make(service_method=path, streaming_type=gRPCStreamingType.UNARY_UNARY)
            handlers[method.name] = grpc.unary_unary_rpc_method_handler(answering(unary))
    add_directly(_SERVICE.full_name)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE.full_name, handlers),))


def answering(serve: _Unary) -> _Unary:
    """Return the handler of a method with one response, around Serve's own."""

    async def answer(request: bytes, context: Any) -> bytes:
        shown = _WithDeadline(context)
        response = await serve(request, shown)
        for attempt in range(1, ATTEMPTS):
            if not _is_lost(context):
                break
            await _prepare_again(context, attempt)
            response = await serve(request, shown)
        _explain(context)
        return response

    return answer


def streaming(serve: _Stream) -> _Stream:
    """Return the handler of a method with many responses, around Serve's own.

    A stream is sent to another engine only as long as the caller has nothing of it. Serve takes the details of a status
    from an engine together with a message alone; this message is left out.
    """

    async def answers(request: bytes, context: Any) -> AsyncGenerator[bytes, None]:
        shown = _WithDeadline(context)
        has_begun = False
        for attempt in range(1, ATTEMPTS + 1):
            async with aclosing(serve(request, shown)) as responses:
                async for response in responses:
                    if not _code(context):
                        has_begun = True
                        yield response
            if has_begun or not _is_lost(context) or attempt == ATTEMPTS:
                break
            await _prepare_again(context, attempt)
        _explain(context)

    return answers


class _WithDeadline:
    """The context of a call, whose metadata also says how much time remains. Serve passes nothing else on."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def invocation_metadata(self) -> tuple[tuple[str, Any], ...]:
        given = tuple((key, value) for key, value in self._context.invocation_metadata() or () if key != REMAINING)
        remaining = self._context.time_remaining()
        return given if remaining is None else (*given, (REMAINING, f"{max(0.0, remaining):.6f}"))


def _code(context: Any) -> int:
    """The status that is set so far, as gRPC's number of it."""
    code = context.code()
    return code.value[0] if isinstance(code, grpc.StatusCode) else int(code or 0)


def _text(context: Any) -> str:
    """What the status says to people so far."""
    text = context.details() or ""
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)


def _trailers(context: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((key, value) for key, value in context.trailing_metadata() or ())


def _is_from_engine(context: Any) -> bool:
    """Whether the status has details, which an engine gives to each status of its own, and Serve to none."""
    return any(key == _DETAILS for key, _ in _trailers(context))


def _is_lost(context: Any) -> bool:
    """Whether Serve has lost the call, because the process that answered it has ended."""
    return _code(context) == _INTERNAL and not _is_from_engine(context)


async def _prepare_again(context: Any, attempt: int) -> None:
    """Forget what became of a call, and wait until it can be sent once more."""
    context.set_code(grpc.StatusCode.OK)
    context.set_details("")
    context.set_trailing_metadata(())
    await asyncio.sleep(_PAUSE * attempt)


def _explain(context: Any) -> None:
    """Give details, as an engine's statuses have them, to Serve's own statuses after which a caller may try again."""
    code = _code(context)
    error: RequestError
    if code not in (_INTERNAL, _UNAVAILABLE, _EXHAUSTED) or _is_from_engine(context):
        return
    if code == _EXHAUSTED:
        if not _text(context).startswith(_NO_ROOM):
            return
        error = queue_full()
    elif code == _INTERNAL:
        error = engines_lost()
    else:
        error = UnavailableError("no engine takes calls; try again", RETRY_AFTER)
    status = rpc_status.to_status(status_of(error))
    context.set_code(status.code)
    context.set_details(status.details)
    context.set_trailing_metadata((*_trailers(context), *status.trailing_metadata))
