"""Streams as lines of JSON, for `curl -N` and for pages without a library.

A request whose content type is plain JSON gets a line for each message of the stream. Connect's own streams put bytes
before each message, in the request too, which neither curl nor a person writes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Awaitable, Callable
from typing import Any

from translane_server.http.statuses import HTTP_STATUSES

Send = Callable[[Any], Awaitable[None]]
Receive = Callable[[], Awaitable[Any]]
Application = Callable[[Any, Receive, Send], Awaitable[None]]

LINES_TYPE = "application/x-ndjson"
_STREAM_TYPE = b"application/connect+json"

# Connect's envelope: flags, and the length of the message (https://connectrpc.com/docs/protocol/#streaming-rpcs).
_ENVELOPE = struct.Struct(">BI")
_LAST = 0b10


class JsonLines:
    """Turns a request of plain JSON into Connect's stream, and the stream's messages into lines.

    An error before the first message has a status of HTTP, as the error of a unary call. A later error is the last
    line: `{"error": …}`.

    Args:
        calls: Connect's application, which sends every envelope whole and by itself.
    """

    def __init__(self, calls: Application) -> None:
        self._calls = calls

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        headers = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
        wrapped = {**scope, "headers": [*headers, (b"content-type", _STREAM_TYPE)]}
        await self._calls(wrapped, _enveloped(receive), _Lines(send))


class _Lines:
    """ASGI's `send` of a stream, whose envelopes become lines."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_stream = True
        self._start: Any = None  # until the first message tells the status

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self._is_stream = message["status"] == 200
            if self._is_stream:
                self._start = message
                return
        if not self._is_stream:  # refused before it became a stream
            await self._send(message)
            return
        flags, size = _ENVELOPE.unpack_from(message["body"])
        content = message["body"][_ENVELOPE.size : _ENVELOPE.size + size]
        if not flags & _LAST:
            await self._begin(200, LINES_TYPE)
            await self._send({"type": "http.response.body", "body": content + b"\n", "more_body": True})
            return
        error = json.loads(content).get("error")
        if error is None:
            await self._begin(200, LINES_TYPE)
            last = b""
        elif self._start is not None:
            await self._begin(HTTP_STATUSES.get(error["code"], 500), "application/json")
            last = json.dumps(error, ensure_ascii=False).encode()
        else:
            last = json.dumps({"error": error}, ensure_ascii=False).encode() + b"\n"
        await self._send({"type": "http.response.body", "body": last, "more_body": False})

    async def _begin(self, status: int, content_type: str) -> None:
        if (start := self._start) is None:
            return
        self._start = None
        dropped = (b"content-type", b"connect-content-encoding")
        headers = [(name, value) for name, value in start["headers"] if name not in dropped]
        headers.append((b"content-type", content_type.encode()))
        await self._send({**start, "status": status, "headers": headers})


def _enveloped(receive: Receive) -> Receive:
    """ASGI's `receive`, whose body, which comes whole, is put into an envelope."""

    async def enveloped() -> Any:
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            body = message["body"]
            return {**message, "body": _ENVELOPE.pack(0, len(body)) + body}
        return message

    return enveloped
