"""The port of the metrics, for Prometheus."""

from __future__ import annotations

import asyncio
import logging
import ssl
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any

from prometheus_client import CollectorRegistry, make_wsgi_app
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from translane_server.http.server import Bounds, HttpServer

_log = logging.getLogger(__name__)

# The path of the metrics, and what others answer.
_PATH = "/metrics"
_INDEX = b'<!doctype html><html lang="en"><title>Translane</title><a href="/metrics">Metrics</a></html>\n'
_BROKEN = b"The metrics cannot be shown. The server's log says why.\n"
_TEXT = "text/plain; charset=utf-8"
_NOT_FOUND = b"There is nothing here. The metrics are at /metrics.\n"

# Most connections. One more closes the oldest, so clients that never end their requests stop no scrape.
_CONNECTIONS = 8
# Longest time of a request, and in which a client takes nothing of its answer [seconds].
_REQUEST_TIME = 5.0

Answer = tuple[int, list[tuple[str, str]], bytes]


class MetricsPort(HttpServer):
    """Listens from the start, and shows the metrics after `start`. A connection has one answer. See `HttpServer`."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        bounds = Bounds(_CONNECTIONS, _REQUEST_TIME, idle=0, age=-1, ends_oldest=True)
        super().__init__(self._answer, host, port, bounds, tls)
        self._shown = make_wsgi_app(registry)
        # A thread of its own: others may be busy for minutes with the files of models.
        self._thread = ThreadPoolExecutor(1, "metrics")

    async def stop(self, seconds: float = 0) -> None:
        await super().stop(seconds)
        self._thread.shutdown(wait=False)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            status, headers, body = await asyncio.get_running_loop().run_in_executor(self._thread, self._page, scope)
        except Exception:  # noqa: BLE001 a collector may raise anything
            _log.exception("the metrics cannot be shown")
            status, headers, body = HTTPStatus.INTERNAL_SERVER_ERROR, [("content-type", _TEXT)], _BROKEN
        await Response(body, status, dict(headers))(scope, receive, send)

    def _page(self, scope: Scope) -> Answer:
        """The answer to a request. Prometheus's own WSGI application chooses its format, and may compress it."""
        if scope["path"] == "/" and scope["method"] == "GET":
            return HTTPStatus.OK, [("content-type", "text/html; charset=utf-8")], _INDEX
        if scope["path"] != _PATH:
            return HTTPStatus.NOT_FOUND, [("content-type", _TEXT)], _NOT_FOUND
        sent = {name: value.decode("latin-1") for name, value in scope["headers"]}
        environ = {
            "REQUEST_METHOD": scope["method"],
            "PATH_INFO": _PATH,
            "QUERY_STRING": scope["query_string"].decode("latin-1"),
            "HTTP_ACCEPT": sent.get(b"accept", ""),
            "HTTP_ACCEPT_ENCODING": sent.get(b"accept-encoding", ""),
        }
        begun: list[Any] = []
        body = b"".join(self._shown(environ, lambda *status_and_headers: begun.extend(status_and_headers)))
        status, headers = begun
        return int(status.partition(" ")[0]), headers, body
