"""The HTTP port's ASGI application: where a request goes, and what becomes of its errors."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from prometheus_client import Counter

from translane_server.api.callers import caller_of_peer
from translane_server.api.forwarded import CERTIFICATE_NAME, PEER, SECRET
from translane_server.core.errors import MessageTimeoutError, MessageTooLargeError, RequestError, UnknownMethodError
from translane_server.forwarding.forwarder import Metadata
from translane_server.http.answers import Answer, Send
from translane_server.http.bodies import Bodies, ClientGoneError
from translane_server.http.calls import Calls, forwarded_metadata
from translane_server.http.checks import (
    COMPRESSED,
    RefusedError,
    Scope,
    certificate_name,
    checked_headers,
    checked_type,
    declared_size,
    header,
    peer_of,
    wrong_method,
)
from translane_server.http.lines import JsonLines
from translane_server.http.origins import Headers, Origins
from translane_server.http.pages import JSON_TYPE, Pages

_log = logging.getLogger(__name__)

Receive = Callable[[], Awaitable[Any]]

# The headers that Connect reads, and the headers that go on to the gRPC service.
_READ = {b"content-type", b"connect-protocol-version", b"connect-timeout-ms", *COMPRESSED}
_FORWARDED = {b"authorization", b"traceparent", b"tracestate"}

# The body of a refused request is received up to this size, and beyond it the connection is closed [bytes].
_SMALL_BODY = 64 * 1024

# HTTP's own statuses for errors of bodies.
_STATUSES = {
    MessageTooLargeError: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    MessageTimeoutError: HTTPStatus.REQUEST_TIMEOUT,
}


class Application:
    """Answers HTTP requests.

    Args:
        calls: the RPCs.
        pages: what GET gives, by path.
        bodies: receives bodies.
        origins: whose pages may call.
        requests: counts answers by their status.
        secret: shows the gRPC service that a call is forwarded.
        caller_header: the header in which a proxy names the caller; empty if the address does.
    """

    def __init__(
        self,
        calls: Calls,
        pages: Pages,
        bodies: Bodies,
        origins: Origins,
        requests: Counter,
        *,
        secret: str,
        caller_header: str = "",
    ) -> None:
        self._calls = calls
        self._lines = JsonLines(calls)
        self._streams = calls.streams
        self._pages = pages
        self._bodies = bodies
        self._origins = origins
        self._requests = requests
        self._secret = secret
        self._forwarded = _FORWARDED | ({caller_header.lower().encode()} if caller_header else set())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = Answer(send, self._always(scope), self._requests)
        try:
            await self._answer(scope, receive, answer)
        except ClientGoneError:
            pass
        except RefusedError as refused:
            if not await self._rest_comes(scope, receive):
                refused.headers["connection"] = "close"
            await answer.refuse(refused.error, refused.status, refused.headers)
        except RequestError as error:
            await answer.refuse(error, _STATUSES.get(type(error)), {"connection": "close"})
        except Exception as error:  # noqa: BLE001  a bug, whose details the caller must not see
            _log.error("an HTTP request failed", exc_info=error)
            await answer.fail()

    async def _answer(self, scope: Scope, receive: Receive, answer: Answer) -> None:
        path, method = scope["path"], scope["method"]
        if method == "OPTIONS" and header(scope, b"access-control-request-method"):
            await answer.preflight(self._origins.preflight(header(scope, b"origin")))
        elif page := self._pages.get(path):
            if method not in ("GET", "HEAD"):
                raise wrong_method("GET, HEAD")
            await answer.page(await page(self._metadata(scope, checked_headers(scope, self._forwarded))))
        elif path in self._streams:
            if method != "POST":
                raise wrong_method("POST")
            await self._call(scope, receive, answer)
        else:
            raise RefusedError(HTTPStatus.NOT_FOUND, UnknownMethodError(f"there is no {_shown(path)} here"))

    async def _call(self, scope: Scope, receive: Receive, answer: Answer) -> None:
        kind = checked_type(scope, streams=self._streams[scope["path"]])
        headers = checked_headers(scope, _READ | self._forwarded)
        with self._bodies.place(caller_of_peer(peer_of(scope))) as place:
            content = await self._bodies.receive(place, receive, declared_size(scope))
            forwarded_metadata.set(self._metadata(scope, headers))
            known = [(name.encode(), value.encode()) for name, value in headers if name.encode() in _READ]
            application = self._lines if kind == JSON_TYPE and self._streams[scope["path"]] else self._calls
            await application({**scope, "headers": known}, _replay(content, receive), answer)

    def _metadata(self, scope: Scope, headers: Sequence[tuple[str, str]]) -> Metadata:
        """The metadata that a call of this request is forwarded with."""
        metadata = [(name, value) for name, value in headers if name.encode() in self._forwarded]
        metadata += [(PEER, peer_of(scope)), (SECRET, self._secret)]
        if name := certificate_name(scope):
            metadata.append((CERTIFICATE_NAME, name))
        return metadata

    async def _rest_comes(self, scope: Scope, receive: Receive) -> bool:
        """Receive and forget the body of a refused request, if it is small, so that the connection can stay open."""
        size = declared_size(scope)
        if size is None:
            return header(scope, b"transfer-encoding") is None
        if size > _SMALL_BODY:
            return False
        try:
            with self._bodies.place(caller_of_peer(peer_of(scope))) as place:
                await self._bodies.receive(place, receive, size)
        except (RequestError, ClientGoneError):
            return False
        return True

    def _always(self, scope: Scope) -> Headers:
        """The headers of every answer to a request."""
        headers: Headers = [
            (b"date", formatdate(usegmt=True).encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            *self._origins.headers(header(scope, b"origin")),
        ]
        connection = scope.get("state", {}).get("connection")
        return [*headers, (b"connection", b"close")] if connection and connection.is_ending else headers


def _replay(content: bytes, receive: Receive) -> Receive:
    """ASGI's `receive` that gives the whole body first."""
    left = [{"type": "http.request", "body": content, "more_body": False}]

    async def replayed() -> Any:
        return left.pop() if left else await receive()

    return replayed


def _shown(path: str) -> str:
    return quote(path[:64], safe="/.:-_~")
