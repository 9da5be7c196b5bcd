"""The RPCs of the HTTP port: Connect's endpoints, made from the descriptor of the service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, TypeVar

import grpc
from connectrpc.errors import ConnectError
from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType
from connectrpc.request import RequestContext
from connectrpc.server import ConnectASGIApplication, Endpoint
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import status_pb2

from translane_server.api.status import internal, status_of
from translane_server.core.errors import RequestError
from translane_server.forwarding.forwarder import Forwarder, Metadata
from translane_server.http.codecs import CODECS, Encoded
from translane_server.http.gunzip import Gunzip
from translane_server.http.json_messages import read_json, write_json
from translane_server.http.statuses import connect_error, headers_of, status_of_call

_log = logging.getLogger(__name__)

# The metadata that the current request is forwarded with.
forwarded_metadata: ContextVar[Metadata] = ContextVar("forwarded_metadata", default=())

# JSON up to this size is converted at once, and larger JSON on one of `_THREADS` threads [bytes]. The binary form of an
# answer is smaller than its JSON.
_LITTLE_JSON = 16 * 1024
_LITTLE_ANSWER = 4 * 1024
_THREADS = 2

Context = RequestContext[Any, Any]
_Result = TypeVar("_Result")


class Conversions:
    """Converts JSON, with threads for what is large.

    Args:
        values: most JSON values of a request.
    """

    def __init__(self, values: int) -> None:
        self._values = values
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="json")

    async def binary(self, request: Encoded, message: type[Message]) -> bytes:
        """Return a request in binary form.

        Raises:
            InvalidRequestError: the JSON is none of this message.
        """
        if not request.is_json:
            return request.data
        return await self._run(len(request.data) <= _LITTLE_JSON, read_json, request.data, message, self._values)

    async def answer(self, binary: bytes, message: type[Message], request: Encoded) -> bytes:
        """Return an answer in the form of the request."""
        if not request.is_json:
            return binary
        return await self._run(len(binary) <= _LITTLE_ANSWER, write_json, binary, message)

    def stop(self) -> None:
        """End the threads when they are free."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, is_little: bool, convert: Callable[..., _Result], *arguments: Any) -> _Result:
        if is_little:
            return convert(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._threads, convert, *arguments)


class Calls(ConnectASGIApplication[Forwarder]):
    """The ASGI application of a service. Each call goes on to the service of the same name behind `forwarder`.

    Args:
        service: the service.
        forwarder: what calls it.
        conversions: converts JSON.
        body_bytes: largest body [bytes].
    """

    def __init__(
        self, service: ServiceDescriptor, forwarder: Forwarder, conversions: Conversions, body_bytes: int
    ) -> None:
        self._descriptor = service
        self._conversions = conversions
        super().__init__(
            service=forwarder,
            endpoints=self._made_endpoints,
            read_max_bytes=body_bytes,
            compressions=(Gunzip(),),
            codecs=CODECS,
        )

    @property
    def path(self) -> str:
        return f"/{self._descriptor.full_name}"

    @property
    def streams(self) -> Mapping[str, bool]:
        """The path of each method, and whether it sends many messages."""
        return {f"{self.path}/{method.name}": method.server_streaming for method in self._descriptor.methods}

    def _made_endpoints(self, forwarder: Forwarder) -> Mapping[str, Any]:
        return {f"{self.path}/{method.name}": self._endpoint(method, forwarder) for method in self._descriptor.methods}

    def _endpoint(self, method: MethodDescriptor, forwarder: Forwarder) -> Endpoint[Encoded, bytes]:
        path = f"{self.path}/{method.name}"
        request_type, answer_type = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        conversions = self._conversions

        async def unary(request: Encoded, context: Context) -> bytes:
            try:
                message = await conversions.binary(request, request_type)
                answer = await forwarder.unary(path, message, forwarded_metadata.get(), _seconds(context))
                return await conversions.answer(answer, answer_type, request)
            except Exception as error:  # noqa: BLE001  also a bug, whose details the caller must not see
                raise _told(error, context) from None

        async def stream(request: Encoded, context: Context) -> AsyncIterator[bytes]:
            try:
                message = await conversions.binary(request, request_type)
                async for answer in forwarder.stream(path, message, forwarded_metadata.get(), _seconds(context)):
                    yield await conversions.answer(answer, answer_type, request)
            except Exception as error:  # noqa: BLE001  also a bug, whose details the caller must not see
                raise _told(error, context) from None

        kind = StreamType.SERVER_STREAM if method.server_streaming else StreamType.UNARY
        info = MethodInfo(
            name=method.name,
            service_name=self._descriptor.full_name,
            input=Encoded,
            output=bytes,
            idempotency_level=IdempotencyLevel.UNKNOWN,
            stream_type=kind,
        )
        if method.server_streaming:
            return Endpoint.server_stream(info, stream)
        return Endpoint.unary(info, unary)


def _seconds(context: Context) -> float | None:
    """Seconds until the caller's deadline."""
    milliseconds = context.timeout_ms
    return None if milliseconds is None else max(0.0, milliseconds / 1000)


def _told(error: Exception, context: Context) -> ConnectError:
    """The error that the caller gets, whose headers are set."""
    status: status_pb2.Status
    if isinstance(error, RequestError):
        status = status_of(error)
    elif isinstance(error, grpc.aio.AioRpcError):
        status = status_of_call(error)
    else:
        _log.error("an HTTP request failed", exc_info=error)
        status = internal()
    for name, value in headers_of(status).items():
        context.response_headers[name] = value
    return connect_error(status)
