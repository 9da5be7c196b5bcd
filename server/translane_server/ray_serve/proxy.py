"""What Serve's gRPC proxy does with the calls of translane.v1.TranslationService.

Serve's configuration names `add_translation_service` among its `grpc_servicer_functions`. The function that protobuf
generates has three faults: it parses each message, which the proxy only passes on; it tells an engine nothing of a
call's deadline; and a lost engine becomes an INTERNAL error, after which no client tries again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

import grpc
from ray.serve.grpc_util import RayServegRPCContext

from translane.v1 import translation_pb2 as pb
from translane.v1.translation_pb2_grpc import add_TranslationServiceServicer_to_server
from translane_server.api.call import REQUEST_ID, request_id_in
from translane_server.api.status import status_of
from translane_server.core.errors import RequestError, UnavailableError
from translane_server.ray_serve.calls import REMAINING, RETRY_AFTER, Answer, no_engine, queue_full

_log = logging.getLogger(__name__)

_SERVICE = pb.DESCRIPTOR.services_by_name["TranslationService"]

# How often a call is sent to an engine. A translation has no effects and is always the same, so a call whose engine has
# ended can be sent to another one. The pause before grows with each attempt [seconds].
ATTEMPTS = 3
_PAUSE = 0.1

# What callers are told where Serve itself has a status after which they may try again.
_REFUSALS: Mapping[Any, RequestError] = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: queue_full(),
    grpc.StatusCode.UNAVAILABLE: no_engine(),
    grpc.StatusCode.INTERNAL: UnavailableError("each engine that had the call has ended; try again", RETRY_AFTER),
}

_Unary = Callable[[bytes, Any], Awaitable[bytes]]
_Stream = Callable[[bytes, Any], AsyncGenerator[bytes, None]]


def add_translation_service(servicer: Any, server: Any) -> None:
    """Add the service to Serve's gRPC server, which sends its calls to the ingress deployment.

    To another `gRPCGenericServer` than that of Ray 2.60, the service is added as protobuf generates it.
    """
    try:
        make, add_directly = server.service_handler_factory, server.add_passthrough_service
    except AttributeError:
        _log.warning("this version of Ray Serve is not known: deadlines and lost engines are not told")
        add_TranslationServiceServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
        return
    handlers = {}
    for method in _SERVICE.methods:
        kind = "unary_stream" if method.server_streaming else "unary_unary"  # equal Serve's enumeration of strings
        serve = make(service_method=f"/{_SERVICE.full_name}/{method.name}", streaming_type=kind)
        answering = repeating(serve if method.server_streaming else streaming(serve))
        handlers[method.name] = grpc.unary_stream_rpc_method_handler(answering)
    add_directly(_SERVICE.full_name)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE.full_name, handlers),))


def streaming(serve: _Unary) -> _Stream:
    """Return Serve's handler of a method with one response in the form for many. On the wire both are the same."""

    async def answers(request: bytes, context: Any) -> AsyncGenerator[bytes, None]:
        yield await serve(request, context)

    return answers


def repeating(serve: _Stream) -> _Stream:
    """Return the handler of a method, around Serve's own.

    A call is sent to another engine only as long as the caller has nothing of its answer. Serve takes the details of a
    status from an engine together with a message alone; this message is left out.
    """

    async def answers(request: bytes, context: Any) -> AsyncGenerator[bytes, None]:
        has_begun = False
        for attempt in range(1, ATTEMPTS + 1):
            tried = _Attempt(context)
            async with aclosing(serve(request, tried)) as responses:
                async for response in responses:
                    if not tried.has_failed:
                        has_begun = True
                        yield response
            if has_begun or not tried.is_lost or attempt == ATTEMPTS:
                break
            await asyncio.sleep(_PAUSE * attempt)
        tried.tell(context)

    return answers


class _Attempt(RayServegRPCContext):  # type: ignore[misc]  # Ray has no types
    """The context of a call as one attempt of Serve's has it: with the time that remains, and a status of its own."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        remaining = context.time_remaining()
        self._shown = [each for each in super().invocation_metadata() if each[0] != REMAINING]
        if remaining is not None:
            self._shown.append((REMAINING, f"{max(0.0, remaining):.6f}"))

    def invocation_metadata(self) -> list[tuple[str, Any]]:
        return self._shown

    @property
    def has_failed(self) -> bool:
        return bool(self.code()) and self.code() is not grpc.StatusCode.OK

    @property
    def is_lost(self) -> bool:
        """Whether Serve has lost the call, because the process that answered it has ended."""
        return self.code() is grpc.StatusCode.INTERNAL and not self._is_from_engine

    @property
    def _is_from_engine(self) -> bool:
        """Whether the status has details, which an engine gives to each status of its own, and Serve to none."""
        return "grpc-status-details-bin" in dict(self.trailing_metadata())

    def tell(self, context: Any) -> None:
        """Write the status, a refusal with details, and the caller's name of the request on gRPC's own context."""
        if not self._is_from_engine and (refusal := _REFUSALS.get(self.code())):
            Answer(status=status_of(refusal)).told(self)
        if self.has_failed:
            context.set_code(self.code())
            context.set_details(self.details())
        trailers = dict(self.trailing_metadata())  # Serve repeats a key with each message
        if request_id := request_id_in(self._shown):
            trailers[REQUEST_ID] = request_id
        context.set_trailing_metadata(tuple(trailers.items()))
