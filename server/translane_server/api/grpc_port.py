"""The port on which the RPCs are called over gRPC, and server reflection there.

Newer callers ask for `grpc.reflection.v1`, and older ones only for `grpc.reflection.v1alpha`. The messages of both are
the same (https://github.com/grpc/grpc/blob/master/doc/server-reflection.md), so one servicer answers both.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
from google.protobuf import descriptor_pool, text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.rpc.status_pb2 import Status
from grpc_reflection.v1alpha import reflection, reflection_pb2
from grpc_status import rpc_status

from translane_server.api.answering import Answering
from translane_server.api.call import REQUEST_ID, Call, Method, Write, name_in_certificate, request_id_in
from translane_server.core.errors import UnknownMethodError
from translane_server.observation.metrics import Metrics
from translane_server.settings.server_settings import ServerSettings

_V1 = "grpc.reflection.v1.ServerReflection"
_METHOD = "ServerReflectionInfo"


def enable_reflection(services: Sequence[str], port: GrpcPort) -> None:
    """Let `port` describe `services`, and reflection itself."""
    names = (*services, _V1, reflection.SERVICE_NAME)
    servicer = reflection.aio.ReflectionServicer(names)  # type: ignore[attr-defined]  # it is exported

    async def describe(requests: AsyncIterable[Any], _call: Call, write: Write) -> None:
        async for answer in servicer.ServerReflectionInfo(requests, None):
            await write(answer)

    handler = grpc.stream_stream_rpc_method_handler(
        describe,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    for service in (_V1, reflection.SERVICE_NAME):
        port.add_registered_method_handlers(service, {_METHOD: handler})


def _describe_v1() -> None:
    """Make the description of v1 from that of v1alpha, because grpcio-reflection has the older one alone."""
    file = FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(file)
    written = text_format.MessageToString(file).replace("v1alpha", "v1")
    descriptor_pool.Default().AddSerializedFile(text_format.Parse(written, FileDescriptorProto()).SerializeToString())


_describe_v1()  # once in a process, as generated modules do


Context = grpc.aio.ServicerContext[Any, Any]

_EOF = grpc.aio.EOF  # type: ignore[attr-defined]  # missing from the stubs

# The kinds of methods, as metrics name them, by whether they read and write many messages.
_KINDS = {
    (False, False): "unary",
    (False, True): "server_stream",
    (True, False): "client_stream",
    (True, True): "bidi_stream",
}

# All methods that are not known share these labels, so that callers cannot make new labels.
_UNKNOWN = ("unary", "unknown", "unknown")

# A message up to this many times `max_message_bytes` is received and refused with a reason. gRPC refuses a larger one
# itself, before it is received, and without a reason.
_RECEIVED_MESSAGES = 2

# Where more calls wait to be accepted than this many times `max_calls`, gRPC cancels calls without a reason. Up to
# there, the server refuses calls itself, with a reason.
_WAITING_CALLS = 4

# Streams of a connection that have ended for the client, and that the server has not taken down yet.
_ENDING_STREAMS = 128

# The server asks a silent connection for a sign of life after `_KEEPALIVE`, and closes it after `_KEEPALIVE_TIMEOUT`
# without one. A client may ask every `_LEAST_PING_INTERVAL`; one that asks more often is disconnected [seconds].
_KEEPALIVE, _KEEPALIVE_TIMEOUT = 60, 20
_LEAST_PING_INTERVAL = 9  # clients ask every 10 seconds or less often, by their own clocks

# Longest time from a connection to HTTP/2's first frames [seconds].
_HANDSHAKE_TIME = 10

# Largest metadata of a call [bytes].
_METADATA_BYTES = 16 * 1024

# The logger of gRPC's asynchronous server. It writes a traceback whenever a caller goes away before an answer is sent.
_GRPC_LOGGER = "grpc._cython.cygrpc"


class GrpcPort(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs alone
    """gRPC's server. Its handlers get a `Call` in the place of gRPC's context; see `api.answering`.

    gRPC reads and parses the message of a unary call before it calls the handler. Until then no limit of ours applies,
    and a call that never sends a message stays open for ever. So every method is served in the form whose handler reads
    its own messages. On the wire both forms are the same
    (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md#requests), and a client cannot tell them apart.

    The functions that protobuf generates add services to it, as to a server of gRPC's. `certified` connections have
    certificates, which name their callers.
    """

    def __init__(
        self, metrics: Metrics, answering: Answering, options: list[tuple[str, int]], *, certified: bool = False
    ) -> None:
        logging.getLogger(_GRPC_LOGGER).addFilter(_is_news)
        self._metrics = metrics
        self._answering = answering
        self._certified = certified
        self._added: dict[str, Any] = {}  # handlers by path
        self._handlers: dict[str, Any] = {}  # those of `_added` that were called, as gRPC calls them
        unknown = Method(metrics, *_UNKNOWN, reads_many=True)
        self._unknown = self._handler(unknown, grpc.stream_unary_rpc_method_handler(_refuse))
        # With 1, a second server could share the port, and would get some of the requests.
        self.server = grpc.aio.server(handlers=[self], options=[("grpc.so_reuseport", 0), *options])
        self.port = 0  # where it listens; 0 before `listen`

    def listen(self, address: str, credentials: grpc.ServerCredentials | None = None) -> None:
        """Listen on HOST:PORT; port 0 takes a free one. Calls are answered once `server` is started.

        Raises:
            RuntimeError: the server cannot listen there.
        """
        if credentials:
            self.port = self.server.add_secure_port(address, credentials)
        else:
            self.port = self.server.add_insecure_port(address)

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """Add the methods of a service. Those that its servicer does not have stay unknown."""
        self._added |= {f"/{service}/{name}": handler for name, handler in handlers.items()}

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Do nothing: the same handlers are registered, too."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of a method, as gRPC asks for it."""
        path = handler_call_details.method
        if handler := self._handlers.get(path):
            return handler
        added = self._added.get(path)
        if added is None or not inspect.iscoroutinefunction(_behavior(added)):
            return self._unknown
        _, service, name = path.split("/")
        many = (added.request_streaming, added.response_streaming)
        method = Method(self._metrics, _KINDS[many], service, name, reads_many=many[0], writes_many=many[1])
        self._handlers[path] = handler = self._handler(method, added)
        return handler

    def _handler(self, method: Method, added: Any) -> Any:
        answer, parse, behavior = self._answering.answer, added.request_deserializer, _behavior(added)
        certified = self._certified

        async def handle(_messages: Any, context: Context) -> Any:
            metadata: Any = context.invocation_metadata() or ()
            certificate = name_in_certificate(context.auth_context()) if certified else ""
            request_id = request_id_in(metadata)
            call = Call(method, metadata, context.peer(), certificate, context.time_remaining(), request_id)
            echoed = ((REQUEST_ID, request_id),) if request_id else ()
            if echoed:
                context.set_trailing_metadata(echoed)
            return await answer(call, _GrpcTransport(context, echoed), behavior, parse)

        made = grpc.stream_stream_rpc_method_handler if method.writes_many else grpc.stream_unary_rpc_method_handler
        return made(handle, None, added.response_serializer)


@dataclass(slots=True)
class _GrpcTransport:
    """Carries the messages of a call of gRPC's; see `Transport`."""

    context: Context
    echoed: tuple[tuple[str, str], ...]
    expansion: int = 1

    async def read(self) -> bytes | None:
        try:
            message = await self.context.read()
        except grpc.aio.InternalError:
            raise asyncio.CancelledError from None
        return None if message is _EOF else message

    async def write(self, message: Any, /) -> None:
        try:
            await self.context.write(message)
        except grpc.aio.InternalError:
            raise asyncio.CancelledError from None

    async def fail(self, status: Status, /) -> NoReturn:
        plain = rpc_status.to_status(status)
        await self.context.abort(plain.code, plain.details, (*plain.trailing_metadata, *self.echoed))


async def _refuse(_messages: object, _call: Call) -> NoReturn:
    raise UnknownMethodError("there is no such method")


def _behavior(handler: Any) -> Any:
    """The function of a handler of gRPC's."""
    return handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream


def options_of(settings: ServerSettings, connections: int) -> list[tuple[str, int]]:
    """The options of a port of so many connections: https://grpc.github.io/grpc/core/group__grpc__arg__keys.html."""
    received = min(_RECEIVED_MESSAGES * settings.max_message_bytes, 2**31 - 1)
    waiting = min(_WAITING_CALLS * settings.max_calls, 2**31 - 1)
    return [
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_TIME * 1000),
        ("grpc.max_concurrent_streams", settings.max_streams),
        ("grpc.http2.max_deallocating_streams", _ENDING_STREAMS),
        ("grpc.server.max_pending_requests", waiting),
        ("grpc.server.max_pending_requests_hard_limit", waiting),
        ("grpc.max_receive_message_length", received),
        ("grpc.max_send_message_length", -1),
        # Without probes, gRPC takes 64 KiB of a message before the call has its turn to receive, and not megabytes.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.max_metadata_size", _METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", _METADATA_BYTES),
        ("grpc.keepalive_time_ms", _KEEPALIVE * 1000),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT * 1000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", _LEAST_PING_INTERVAL * 1000),
        ("grpc.max_connection_idle_ms", _milliseconds(settings.max_connection_idle)),
        ("grpc.max_connection_age_ms", _milliseconds(settings.max_connection_age)),
        ("grpc.max_connection_age_grace_ms", _milliseconds(settings.request_timeout)),
    ]


def _milliseconds(seconds: float) -> int:
    return max(1, min(round(seconds * 1000), 2**31 - 1))


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a record of gRPC's says more than that a caller has gone."""
    return record.exc_info is None or not isinstance(record.exc_info[1], grpc.aio.InternalError)
