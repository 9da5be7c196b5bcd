"""The metrics port: Prometheus's own handler, on a few threads that no client can occupy for long."""

from __future__ import annotations

import contextlib
import io
import socket
import socketserver
import ssl
import threading
import time
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import MetricsHandler

# The path of the metrics, and what others answer.
_PATH = "/metrics"
_INDEX = b'<!doctype html><html lang="en"><title>Translane</title><a href="/metrics">Metrics</a></html>\n'
_NOT_FOUND = b"There is nothing here. The metrics are at /metrics.\n"

# Connections, with a thread each. One more closes the oldest, so a client that never ends its request stops no scrape.
_CONNECTIONS = 8

# Largest request, headers included [bytes], and the longest time in which it comes, and in which the answer is taken
# [seconds].
_REQUEST_BYTES = 16 * 1024
_REQUEST_TIME = 5.0

# How long TLS waits for the client's goodbye. The server's own goodbye tells the client that it has got all [seconds].
_GOODBYE_TIME = 1.0

# How long to wait when a connection cannot be accepted, because no file descriptor is left [seconds].
_PAUSE = 0.2


class MetricsServer:
    """Serves the metrics to Prometheus on a port and threads of its own, over HTTP/1.0, maybe over TLS.

    Args:
        registry: the metrics.
        host: address or name to listen on.
        port: port to listen on; 0 takes a free one.
        tls: the certificate of the port; None for HTTP without TLS.

    Raises:
        OSError: the server cannot listen on the port.
    """

    def __init__(self, registry: CollectorRegistry, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        handler = type("Handler", (_Handler,), {"registry": registry})
        self._server = _server_of(host)((host, port), handler)
        self._server.tls = tls
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()
        self.port: int = self._server.server_port

    def stop(self) -> None:
        """Close the port, and end all connections."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _BoundedServer(ThreadingHTTPServer):
    """Has at most `_CONNECTIONS` connections: one more closes the oldest."""

    daemon_threads = True
    block_on_close = False
    tls: ssl.SSLContext | None = None

    def __init__(self, *arguments: Any) -> None:
        self._open: dict[int, socket.socket] = {}  # by the connection's identity, the oldest first
        self._lock = threading.Lock()
        super().__init__(*arguments)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer would look up the host's full name, which can take long
        self.server_name = str(self.server_address[0])
        self.server_port = self.server_address[1]

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            connection, address = super().get_request()
        except OSError:
            time.sleep(_PAUSE)  # the caller ignores the error and tries again at once
            raise
        if self.tls:  # the handshake is part of the first read, which the connection's own thread does
            connection = self.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) >= _CONNECTIONS:
                _end(self._open.pop(next(iter(self._open))))
            self._open[id(request)] = request
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(id(request), None)
        if isinstance(request, ssl.SSLSocket):
            with contextlib.suppress(OSError, ValueError):
                request.settimeout(_GOODBYE_TIME)
                request.unwrap()
        super().shutdown_request(request)

    def server_close(self) -> None:
        super().server_close()
        with self._lock:
            for connection in self._open.values():
                _end(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that goes away."""


class _BoundedServer6(_BoundedServer):
    address_family = socket.AF_INET6


class _Handler(MetricsHandler):
    """Reads a request of bounded size in bounded time, and answers with the metrics."""

    timeout = _REQUEST_TIME  # of the answer; `_Request` has its own

    def do_GET(self) -> None:  # noqa: N802 the name that http.server calls
        path = self.path.partition("?")[0]
        if path == _PATH:
            super().do_GET()
        elif path == "/":
            self._answer(HTTPStatus.OK, "text/html; charset=utf-8", _INDEX)
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", _NOT_FOUND)

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_Request(self.connection))


class _Request(io.RawIOBase):
    """The bytes of one request. Reading fails where it is too large or too slow, and the connection is closed."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._end = time.monotonic() + _REQUEST_TIME
        self._left = _REQUEST_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        seconds = self._end - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        if self._left <= 0:
            raise ConnectionAbortedError
        self._connection.settimeout(seconds)
        received = self._connection.recv_into(memoryview(buffer)[: self._left])
        self._connection.settimeout(_REQUEST_TIME)
        self._left -= received
        return received


def _server_of(host: str) -> type[_BoundedServer]:
    family = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]
    return _BoundedServer6 if family == socket.AF_INET6 else _BoundedServer


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it may have ended by itself
        connection.shutdown(socket.SHUT_RDWR)
