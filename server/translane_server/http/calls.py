"""RPCs over HTTP: a POST of JSON, and JSON for an answer; or a line of JSON for each message of a stream."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, NoReturn
from urllib.parse import quote

from google.protobuf.message import Message
from google.rpc.status_pb2 import Status
from starlette.types import Receive, Scope, Send

from translane_server.api.admission import Admission
from translane_server.api.answering import Answering, ended_at_deadline
from translane_server.api.call import Call, Method, Write, request_id_in
from translane_server.core.budget import UNLIMITED, Budget, OverBudgetError
from translane_server.core.errors import (
    FieldViolation,
    InvalidRequestError,
    MessageTooLargeError,
)
from translane_server.http.connection import Connection
from translane_server.http.errors import JSON_TYPE, RefusedError, json_of, wrong
from translane_server.http.json_messages import read_json, write_json
from translane_server.translation.tokenizer_pool import TokenizerPool

LINES_TYPE = "application/x-ndjson"

# JSON may take twice the bytes of the message that it stands for, and more if it escapes every character.
BYTES_OF_JSON = 2

# JSON up to this size is read at once, and larger JSON on a thread [bytes]. The binary form of an answer is smaller
# than its JSON.
_LITTLE_JSON = 16 * 1024
_LITTLE_ANSWER = 4 * 1024

# The headers that a call reads beside the header that names the caller, and their largest size, counted as gRPC counts
# metadata [bytes].
_METADATA = frozenset({b"authorization", b"traceparent", b"tracestate"})
_METADATA_BYTES = 8 * 1024
_BYTES_OF_A_HEADER = 32

# Longest time that a caller may give a call [seconds]. `request_timeout` ends calls sooner.
_LONGEST_TIMEOUT = 1e9

# Longest number of a body's size [digits].
_DIGITS = 18


class Rpcs:
    """What all RPCs of a port share.

    Args:
        answering: admits, answers and counts calls.
        pool: reads and writes large JSON; asked for with each message, because models that are loaded anew change it.
        message_bytes: largest message in its binary form [bytes].
        values: most JSON values of a request.
        caller_header: the header in which a proxy names the caller; empty if the address does.
    """

    def __init__(
        self,
        answering: Answering,
        pool: Callable[[], TokenizerPool],
        message_bytes: int,
        values: int,
        caller_header: str = "",
    ) -> None:
        self.answering = answering
        self.admission = answering.admission
        self._pool = pool
        self._message_bytes = message_bytes
        self._values = values
        self._metadata = _METADATA | ({caller_header.lower().encode()} if caller_header else set())

    async def read(self, body: bytes, kind: type[Message], caller: str) -> Message:
        """Return the message of a body.

        Raises:
            InvalidRequestError: the body is no JSON of this message.
            MessageTooLargeError: the message is too large.
            QueueFullError: too many bodies wait to be read.
        """
        size = len(body)
        if size <= _LITTLE_JSON:
            message = read_json(body, kind, self._values, UNLIMITED)
        else:

            def read(budget: Budget) -> Message:
                return read_json(body, kind, self._values, budget)

            try:
                message = await self._pool().read(size, read, caller)
            except OverBudgetError:
                raise InvalidRequestError(FieldViolation("body", "takes too long to read")) from None
        size = message.ByteSize()
        if size > self._message_bytes:
            raise MessageTooLargeError(f"the message has {size} bytes, and {self._message_bytes} are allowed")
        return message

    async def write(self, message: Message, caller: str) -> bytes:
        """Return the JSON of an answer."""
        size = message.ByteSize()
        if size <= _LITTLE_ANSWER:
            return write_json(message)
        return await self._pool().build(size, lambda _budget: write_json(message), caller)

    def begin(self, scope: Scope, method: Method) -> Call:
        """Return the call of a request whose headers have come.

        Raises:
            RefusedError: a header is wrong.
        """
        connection: Connection = scope["state"]["connection"]
        metadata = _metadata(scope, self._metadata)
        request_id = request_id_in(scope["headers"])
        return Call(method, metadata, peer_of(scope), connection.caller, _timeout(scope), request_id)


class Rpc:
    """An RPC at a path, as an ASGI application.

    Args:
        rpcs: what it shares with others.
        method: the method.
        handler: handles a message; see `Answering.answer`.
        request: type of the message. A GET has none, and stands for an empty one.
        show: makes the body of an answer, in the place of its JSON.
    """

    def __init__(
        self,
        rpcs: Rpcs,
        method: Method,
        handler: Callable[..., Awaitable[Any]],
        request: type[Message],
        *,
        show: Callable[[Any], bytes] | None = None,
    ) -> None:
        self._rpcs = rpcs
        self._method = method
        self._handler = handler
        self._request = request
        self._show = show

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection: Connection = scope["state"]["connection"]
        try:
            if scope["method"] == "POST":
                _check_type(scope)
            call = self._rpcs.begin(scope, self._method)
            transport = _HttpTransport(scope, receive, send, call, self._rpcs)
            handle = self._stream if self._method.writes_many else self._unary
            with connection.answering(), ended_at_deadline(call):
                answer = await self._rpcs.answering.answer(call, transport, handle, None)
            await transport.end(answer)
        except RefusedError as error:
            await respond(send, error.http_status, error.headers, error.body)
        except _EndedError:
            pass
        except asyncio.CancelledError:
            if not connection.is_lost:
                raise
        await connection.drained()

    async def _unary(self, body: bytes, call: Call) -> bytes:
        answer = await self._handler(await self._message(body, call), call)
        return self._show(answer) if self._show else await self._rpcs.write(answer, call.caller)

    async def _stream(self, body: bytes, call: Call, write: Write) -> None:
        await self._handler(await self._message(body, call), call, write)

    async def _message(self, body: bytes, call: Call) -> Message:
        return await self._rpcs.read(body, self._request, call.caller) if body else self._request()


class _EndedError(Exception):
    """The caller of a stream has been told of its error."""


class _HttpTransport:
    """Carries the messages of a call; see `Transport`."""

    __slots__ = ("_admission", "_call", "_receive", "_rpcs", "_scope", "_send", "_started")

    expansion = BYTES_OF_JSON

    def __init__(self, scope: Scope, receive: Receive, send: Send, call: Call, rpcs: Rpcs) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._call = call
        self._rpcs = rpcs
        self._admission: Admission = rpcs.admission
        self._started = False

    async def read(self) -> bytes | None:
        if self._scope["method"] != "POST":
            return b""
        take = partial(self._admission.take, self._call, expansion=self.expansion)
        if declared := _declared_size(self._scope):
            self._admission.check_size(declared, self.expansion)
        content = bytearray()
        while True:
            event = await self._receive()
            if event["type"] != "http.request":
                raise asyncio.CancelledError
            content += event.get("body", b"")
            take(len(content))
            if not event.get("more_body", False):
                return bytes(content) or b" "  # an empty body is no message, and reading it says so

    async def write(self, message: Any, /) -> None:
        line = await self._rpcs.write(message, self._call.caller)
        await self._begin()
        await self._send({"type": "http.response.body", "body": line + b"\n", "more_body": True})

    async def fail(self, status: Status, /) -> NoReturn:
        if not self._started:
            raise RefusedError(status)
        line = json.dumps({"error": json_of(status)}, ensure_ascii=False).encode() + b"\n"
        await self._send({"type": "http.response.body", "body": line, "more_body": False})
        raise _EndedError

    async def end(self, answer: bytes | None) -> None:
        """Send the answer; or end the stream, which has been sent."""
        if answer is not None:
            await respond(self._send, HTTPStatus.OK, {"content-type": JSON_TYPE}, answer)
        else:
            await self._begin()
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _begin(self) -> None:
        if not self._started:
            self._started = True
            headers = [(b"content-type", LINES_TYPE.encode())]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})


async def respond(send: Send, status: int, headers: Mapping[str, str], body: bytes) -> None:
    """Send an answer of one part."""
    listed = [(name.encode(), value.encode()) for name, value in headers.items()]
    listed.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": int(status), "headers": listed})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def peer_of(scope: Scope) -> str:
    """Return gRPC's name of the other end of a connection (https://github.com/grpc/grpc/blob/master/doc/naming.md)."""
    host, port = scope["client"] or ("", 0)
    if ":" in host:
        return f"ipv6:%5B{quote(host, safe=':')}%5D:{port}"
    return f"ipv4:{host}:{port}"


def _header(scope: Scope, name: bytes) -> str:
    """The first header of this name; empty if there is none."""
    return next((value.decode("latin-1") for each, value in scope["headers"] if each == name), "")


def _check_type(scope: Scope) -> None:
    """Refuse a body that is no plain JSON."""
    kind, _, parameters = _header(scope, b"content-type").lower().partition(";")
    charset = parameters.strip().replace('"', "")
    if kind.strip() != JSON_TYPE or charset not in ("", "charset=utf-8"):
        status, headers = HTTPStatus.UNSUPPORTED_MEDIA_TYPE, {"accept-post": JSON_TYPE}
        raise wrong("content-type", "must be application/json, in UTF-8", status, headers)
    if _header(scope, b"content-encoding").lower() not in ("", "identity"):
        status, headers = HTTPStatus.UNSUPPORTED_MEDIA_TYPE, {"accept-encoding": "identity"}
        raise wrong("content-encoding", "must be identity: compressed requests are not taken", status, headers)


def _metadata(scope: Scope, names: frozenset[bytes]) -> list[tuple[str, str]]:
    """The headers of a request that have these names."""
    headers = []
    size = 0
    for name, value in scope["headers"]:
        if name in names:
            size += len(name) + len(value) + _BYTES_OF_A_HEADER
            if size > _METADATA_BYTES:
                problem = f"is too large: such headers may have {_METADATA_BYTES} bytes"
                raise wrong(name.decode(), problem, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            if not all(32 <= byte < 127 for byte in value):
                raise wrong(name.decode(), "must be printable ASCII", HTTPStatus.BAD_REQUEST)
            headers.append((name.decode(), value.decode()))
    return headers


def _timeout(scope: Scope) -> float | None:
    """How long the caller waits [seconds]; None if it does not say."""
    given = _header(scope, b"request-timeout")
    if not given:
        return None
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= _LONGEST_TIMEOUT:
        raise wrong("request-timeout", "must be a number of seconds above 0", HTTPStatus.BAD_REQUEST)
    return seconds


def _declared_size(scope: Scope) -> int:
    """The size of the body that the request names [bytes]; 0 if it names none."""
    size = _header(scope, b"content-length")
    return int(size[:_DIGITS]) if size else 0
