"""The answer to one HTTP request: its headers, its count, and what the port itself answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

from prometheus_client import Counter

from translane_server.api.status import internal, status_of
from translane_server.core.errors import RequestError
from translane_server.http.origins import Headers
from translane_server.http.pages import JSON_TYPE, Page
from translane_server.http.statuses import body_of, headers_of, http_status_of

Send = Callable[[Any], Awaitable[None]]

# What connectrpc says of compression, and there is none; the length is set here.
_DROPPED = {b"content-encoding", b"connect-content-encoding", b"vary", b"content-length"}


class Answer:
    """ASGI's `send` of one request: adds headers, counts, and writes what the application itself answers."""

    def __init__(self, send: Send, headers: Headers, requests: Counter) -> None:
        self._send = send
        self._headers = headers
        self._requests = requests
        self._started = False
        self._start: Any = None  # until the first part of the body tells whether it is the whole body

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self._started = True
            self._start = message
            return
        if start := self._start:
            self._start = None
            self._requests.labels(str(start["status"])).inc()
            set_here = {name for name, _ in self._headers} | _DROPPED
            headers = [(name, value) for name, value in start["headers"] if name not in set_here]
            if not message.get("more_body", False) and start["status"] != HTTPStatus.NO_CONTENT:
                headers.append((b"content-length", str(len(message["body"])).encode()))
            await self._send({**start, "headers": [*headers, *self._headers]})
        await self._send(message)

    async def page(self, page: Page) -> None:
        headers = {"content-type": page.content_type, **page.headers}
        await self._write(page.status, headers, page.body)

    async def preflight(self, headers: Headers) -> None:
        self._headers = [*(each for each in self._headers if each not in headers), *headers]
        await self._write(HTTPStatus.NO_CONTENT, {}, b"")

    async def refuse(
        self, error: RequestError, status: HTTPStatus | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        if self._started:  # nothing fits any more; uvicorn closes the connection
            return
        told = status_of(error)
        more = {"content-type": JSON_TYPE, **headers_of(told), **(headers or {})}
        await self._write(status or http_status_of(told), more, body_of(told))

    async def fail(self) -> None:
        if not self._started:
            headers = {"content-type": JSON_TYPE, "connection": "close"}
            await self._write(HTTPStatus.INTERNAL_SERVER_ERROR, headers, body_of(internal()))

    async def _write(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        listed = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self({"type": "http.response.start", "status": int(status), "headers": listed})
        await self({"type": "http.response.body", "body": body, "more_body": False})
