"""RPCs over HTTP: a POST of JSON, and JSON for an answer; or a line of JSON for each message of a stream.

The body of a document is the file, and so is the answer. The query has the other fields of the request.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, ClassVar, NoReturn
from urllib.parse import parse_qsl, quote

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.rpc.status_pb2 import Status
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from translane.v1 import translation_pb2 as pb
from translane_server.api.answering import Answering, Handler, ended_at_deadline
from translane_server.api.call import Call, Method, ToldError, Write, request_id_in
from translane_server.core.budget import UNLIMITED, OverBudgetError
from translane_server.core.errors import FieldViolation, InvalidRequestError, MessageTooLargeError
from translane_server.http.errors import JSON_TYPE, RefusedError, wrong
from translane_server.http.json_messages import message_of, read_json, write_json
from translane_server.http.server import Connection
from translane_server.text.documents import KINDS
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
_METADATA = (b"authorization", b"traceparent", b"tracestate")
_METADATA_BYTES = 8 * 1024
_BYTES_OF_A_HEADER = 32

_CHARSET = re.compile(r"""\bcharset\s*=\s*"?([^\s";]*)""")
_UTF8 = ("utf-8", "utf8")
# Encodings of documents that do not name their own. UTF-16 is known by its byte order mark.
_CHARSETS = (*_UTF8, "us-ascii", "utf-16")

# Longest time that a caller may give a call [seconds]. `request_timeout` ends calls sooner.
_LONGEST_TIMEOUT = 1e9

_MOST_FIELDS = 256  # of a query
_BOOLEANS = {"true": True, "false": False}


def _fields(message: Any, without: tuple[str, ...] = ()) -> dict[str, FieldDescriptor]:
    """The fields of a message that a text can set, by both of their names."""
    fields = [each for each in message.DESCRIPTOR.fields if each.message_type is None and each.name not in without]
    return {name: field for field in fields for name in (field.name, field.json_name)}


_FIELDS: Mapping[str, FieldDescriptor] = _fields(pb.TranslateDocumentRequest, ("content", "mime_type"))
_OPTIONS: Mapping[str, FieldDescriptor] = _fields(pb.DecodingOptions)


@dataclass(frozen=True)
class Rpcs:
    """What all RPCs of a port share."""

    answering: Answering  # admits, answers and counts calls
    # reads and writes large JSON; asked for with each message, because models that are loaded anew change it
    pool: Callable[[], TokenizerPool]
    message_bytes: int  # largest message in its binary form [bytes]
    texts: int  # most texts of a request
    caller_header: str = ""  # the header in which a proxy names the caller; empty if the address does

    async def read(self, body: bytes, kind: type[Message], caller: str) -> Message:
        """Return the message of a body.

        Raises:
            InvalidRequestError: the body is no JSON of this message.
            MessageTooLargeError: the message is too large.
            QueueFullError: too many bodies wait to be read.
        """
        read = partial(read_json, body, kind, self.texts)
        try:
            little = len(body) <= _LITTLE_JSON
            message = read(UNLIMITED) if little else await self.pool().read(len(body), read, caller)
        except OverBudgetError:
            raise InvalidRequestError(FieldViolation("body", "takes too long to read")) from None
        size = message.ByteSize()
        if size > self.message_bytes:
            raise MessageTooLargeError(f"the message has {size} bytes, and {self.message_bytes} are allowed")
        return message

    async def write(self, message: Message, caller: str) -> bytes:
        """Return the JSON of an answer."""
        size = message.ByteSize()
        if size <= _LITTLE_ANSWER:
            return write_json(message)
        return await self.pool().build(size, lambda _budget: write_json(message), caller)

    def begin(self, scope: Scope, method: Method) -> Call:
        """Return the call of a request whose headers have come. RefusedError: a header is wrong."""
        connection: Connection = scope["state"]["connection"]
        metadata = _metadata(scope, self.caller_header.lower().encode())
        request_id = request_id_in(scope["headers"])
        return Call(method, metadata, peer_of(scope), connection.caller, _timeout(scope), request_id)


@dataclass(frozen=True)
class Rpc:
    """An RPC at a path, as an ASGI application."""

    expansion: ClassVar[int] = BYTES_OF_JSON  # see `Transport`

    rpcs: Rpcs  # what it shares with others
    method: Method
    handler: Handler  # handles a message; see `Answering.answer`. It returns a message, or the bytes of an answer
    request: type[Message]  # of the message. A GET has none, and stands for an empty one

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            handle, kind = self.prepared(scope)
            call = self.rpcs.begin(scope, self.method)
            transport = _HttpTransport(scope, receive, send, call, self.rpcs, self.expansion)
            with ended_at_deadline(call):
                answer = await self.rpcs.answering.answer(call, transport, handle, None)
            await transport.end(answer, kind)
        except RefusedError as error:
            await refusal(error)(scope, receive, send)
        except ToldError:
            pass

    def prepared(self, scope: Scope) -> tuple[Handler, str]:
        """Return what answers the body of a request, and the type of an answer of one part.

        Raises:
            RefusedError: the body is none of this RPC.
        """
        if scope["method"] == "POST":
            _type_of(scope, (JSON_TYPE,), f"must be {JSON_TYPE}, in UTF-8")
        return self._handle, JSON_TYPE

    async def _handle(self, body: bytes, call: Call, *write: Any) -> bytes | None:
        message = await self.rpcs.read(body, self.request, call.caller)
        answer = await self.handler(message, call, *write)
        return await self.rpcs.write(answer, call.caller) if isinstance(answer, Message) else answer


class DocumentRpc(Rpc):
    """TranslateDocument at a path. A caller that accepts lines of JSON gets the messages of the stream."""

    expansion = 1

    def prepared(self, scope: Scope) -> tuple[Handler, str]:
        """See `Rpc.prepared`. The answer is of the body's type."""
        kind = _type_of(scope, KINDS, f"must be one of {', '.join(KINDS)}")
        fields = _fields_in(scope["query_string"])
        as_lines = LINES_TYPE in Headers(scope=scope).get("accept", "")

        async def handle(body: bytes, call: Call, write: Write) -> bytes | None:
            request = message_of(fields, pb.TranslateDocumentRequest)
            request.content, request.mime_type = body, kind
            if as_lines:
                await self.handler(request, call, write)
                return None
            content = bytearray()

            async def keep(response: pb.TranslateDocumentResponse) -> None:
                content.extend(response.content)

            await self.handler(request, call, keep)
            return bytes(content)

        return handle, kind


@dataclass(slots=True)
class _HttpTransport:
    """Carries the messages of a call; see `Transport`."""

    _scope: Scope
    _receive: Receive
    _send: Send
    _call: Call
    _rpcs: Rpcs
    expansion: int
    _started: bool = False

    async def read(self) -> bytes | None:
        if self._scope["method"] != "POST":
            return b"{}"
        admission = self._rpcs.answering.admission
        admission.check_size(int(Headers(scope=self._scope).get("content-length", 0)), self.expansion)
        content = bytearray()
        has_more = True
        while has_more:
            event = await self._receive()
            if event["type"] != "http.request":
                raise asyncio.CancelledError
            content += event["body"]
            admission.take(self._call, len(content), self.expansion)
            has_more = event["more_body"]
        return bytes(content)

    async def write(self, message: Any, /) -> None:
        await self._send_line(await self._rpcs.write(message, self._call.caller) + b"\n")

    async def fail(self, status: Status, /) -> NoReturn:
        if not self._started:
            raise RefusedError(status)
        await self._send_line(b'{"error":' + write_json(status) + b"}\n", is_last=True)
        raise ToldError

    async def end(self, answer: bytes | None, kind: str) -> None:
        """Send the answer, of this type; or end the stream, which has been sent."""
        if answer is None:
            await self._send_line(b"", is_last=True)
        else:
            await Response(answer, headers={"content-type": kind})(self._scope, self._receive, self._send)

    async def _send_line(self, line: bytes, *, is_last: bool = False) -> None:
        if not self._started:
            self._started = True
            headers = [(b"content-type", LINES_TYPE.encode())]
            await self._send({"type": "http.response.start", "status": HTTPStatus.OK, "headers": headers})
        await self._send({"type": "http.response.body", "body": line, "more_body": not is_last})


def refusal(error: RefusedError) -> Response:
    """Return the answer that tells of an error."""
    return Response(error.body, error.http_status, error.headers)


def peer_of(scope: Scope) -> str:
    """Return gRPC's name of the other end of a connection (https://github.com/grpc/grpc/blob/master/doc/naming.md)."""
    host, port = scope["client"] or ("", 0)
    return f"ipv6:%5B{quote(host, safe=':')}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"


def _type_of(scope: Scope, accepted: Collection[str], problem: str) -> str:
    """Return what the body is. RefusedError: it is none of what is accepted, JSON in no UTF-8, or compressed."""
    headers, status = Headers(scope=scope), HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    kind, _, parameters = headers.get("content-type", "").lower().partition(";")
    named = _CHARSET.search(parameters)
    kind, charset = kind.strip(), named[1] if named else "utf-8"
    if kind not in accepted or (kind == JSON_TYPE and charset not in _UTF8):
        raise wrong("content-type", problem, status, {"accept-post": ", ".join(accepted)})
    if kind in KINDS and not KINDS[kind].declared and charset not in _CHARSETS:
        raise wrong(
            "content-type", f"may have the charset {' or '.join(_CHARSETS)} alone for files of this kind", status
        )
    if headers.get("content-encoding", "").lower() not in ("", "identity"):
        problem = "must be identity: compressed requests are not taken"
        raise wrong("content-encoding", problem, status, {"accept-encoding": "identity"})
    return kind


def _metadata(scope: Scope, caller_header: bytes) -> list[tuple[str, str]]:
    """The headers that a call reads."""
    names = (*_METADATA, caller_header)
    found = [(name.decode(), value) for name, value in scope["headers"] if name in names]
    if sum(len(name) + len(value) + _BYTES_OF_A_HEADER for name, value in found) > _METADATA_BYTES:
        problem = f"have more than {_METADATA_BYTES} bytes: {', '.join(sorted({name for name, _ in found}))}"
        raise wrong("headers", problem, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    for name, value in found:
        if not all(32 <= byte < 127 for byte in value):
            raise wrong(name, "must be printable ASCII", HTTPStatus.BAD_REQUEST)
    return [(name, value.decode()) for name, value in found]


def _timeout(scope: Scope) -> float | None:
    """How long the caller waits [seconds]; None if it does not say."""
    given = Headers(scope=scope).get("request-timeout")
    if not given:
        return None
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= _LONGEST_TIMEOUT:
        raise wrong("request-timeout", "must be a number of seconds above 0", HTTPStatus.BAD_REQUEST)
    return seconds


def _fields_in(query: bytes) -> dict[str, Any]:
    """Return what a query sets of a request, as its JSON has it."""
    try:
        named = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:  # UnicodeDecodeError is one, too
        raise wrong("query", f"must be at most {_MOST_FIELDS} fields in UTF-8", HTTPStatus.BAD_REQUEST) from None
    request: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name, text in named:
        field = _FIELDS.get(name) or _OPTIONS.get(name)
        if field is None:
            raise wrong(name[:64], "is no field of a document's query", HTTPStatus.BAD_REQUEST)
        into = request if name in _FIELDS else options
        if field.is_repeated:
            into.setdefault(field.name, []).append(text)
        elif field.name in into:
            raise wrong(field.name, "is in the query twice", HTTPStatus.BAD_REQUEST)
        else:
            is_boolean = field.cpp_type == FieldDescriptor.CPPTYPE_BOOL
            into[field.name] = _BOOLEANS.get(text, text) if is_boolean else text
    return {**request, "options": options} if options else request
