"""Documents over HTTP: the body is the file, and so is the answer. The query has the other fields of the request."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from google.protobuf.descriptor import FieldDescriptor
from starlette.datastructures import Headers
from starlette.types import Scope

from translane.v1 import translation_pb2 as pb
from translane_server.api.answering import Handler
from translane_server.api.call import Call, Write
from translane_server.http.calls import LINES_TYPE, Rpc, check_encoding
from translane_server.http.errors import wrong
from translane_server.http.json_messages import message_of
from translane_server.text.documents import KINDS

_MOST_FIELDS = 256  # of a query
_BOOLEANS = {"true": True, "false": False}


def _fields(message: Any, without: tuple[str, ...] = ()) -> dict[str, FieldDescriptor]:
    """The fields of a message that a text can set, by both of their names."""
    fields = [each for each in message.DESCRIPTOR.fields if each.message_type is None and each.name not in without]
    return {name: field for field in fields for name in (field.name, field.json_name)}


_FIELDS: Mapping[str, FieldDescriptor] = _fields(pb.TranslateDocumentRequest, ("content", "mime_type"))
_OPTIONS: Mapping[str, FieldDescriptor] = _fields(pb.DecodingOptions)


class DocumentRpc(Rpc):
    """TranslateDocument at a path. A caller that accepts lines of JSON gets the messages of the stream."""

    expansion = 1

    def prepared(self, scope: Scope) -> tuple[Handler, str]:
        """See `Rpc.prepared`. The answer is of the body's type."""
        kind, fields = _kind(scope), _fields_in(scope["query_string"])
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


def _kind(scope: Scope) -> str:
    """Return what the body is. RefusedError: the body is compressed, or no document."""
    headers = Headers(scope=scope)
    kind = headers.get("content-type", "").lower().partition(";")[0].strip()
    if kind not in KINDS:
        kinds, status = ", ".join(KINDS), HTTPStatus.UNSUPPORTED_MEDIA_TYPE
        raise wrong("content-type", f"must be one of {kinds}", status, {"accept-post": kinds})
    check_encoding(headers)
    return kind


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
