"""A port that speaks HTTP: uvicorn's HTTP/1.1 with the bounds of this server, on the event loop of the gRPC port.

uvicorn's own server object takes over signals and polls ten times a second, so only its protocol is used.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from contextlib import suppress
from dataclasses import replace
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from translane_server.http.connection import HEADER_BYTES, Connection, ConnectionTimes

# Connections that wait to be accepted.
_BACKLOG = 512

# Longest time of a TLS handshake, and of the end of a TLS connection [seconds].
_HANDSHAKE_TIME = 10.0
_TLS_CLOSING_TIME = 5.0

# How often the port looks whether its last answers are sent [seconds].
_CLOSING_INTERVAL = 0.01


class HttpServer:
    """Listens from the start, and answers after `serve`.

    Args:
        listener: the listening socket.
        times: times of each connection.
        body_bytes: largest body of a request [bytes].
        tls: the certificate of the port; None without TLS.

    Attributes:
        port: the port.
    """

    def __init__(
        self, listener: Listener, times: ConnectionTimes, body_bytes: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        self.port: int = listener.getsockname()[1]
        self._listener = listener
        self._times = times
        self._body_bytes = body_bytes
        self._tls = tls
        self._state = ServerState()
        self._server: asyncio.Server | None = None

    async def serve(self, application: Any) -> None:
        """Answer requests with an ASGI application."""
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it has a line for each client that errs
        config = Config(
            application,
            interface="asgi3",
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # any client can set X-Forwarded-For
            server_header=False,
            date_header=False,
            h11_max_incomplete_event_size=HEADER_BYTES,
        )
        config.load()
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Connection(config, self._state, self._times, self._body_bytes),
            sock=self._listener,
            ssl=self._tls,
            ssl_handshake_timeout=_HANDSHAKE_TIME if self._tls else None,
            ssl_shutdown_timeout=_TLS_CLOSING_TIME if self._tls else None,
        )

    def drain(self) -> None:
        """Close each connection with its next answer."""
        for connection in self._connections():
            connection.drain()
        self._times = replace(self._times, age=-1)  # new connections, too

    async def stop(self, seconds: float = 0) -> None:
        """Close the port. Answers that are ready get some seconds to be sent."""
        self._listener.close() if self._server is None else self._server.close()
        for connection in self._connections():
            connection.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._state.connections:  # noqa: ASYNC110  uvicorn tells nobody
                    await asyncio.sleep(_CLOSING_INTERVAL)
        for connection in self._connections():
            connection.transport.abort()
        for task in list(self._state.tasks):
            task.cancel()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)

    def _connections(self) -> list[Connection]:
        return [each for each in self._state.connections if isinstance(each, Connection)]


class Listener(socket.socket):
    """A socket that listens, with at most `connections` connections. One beyond them is closed at once.

    asyncio does not limit connections. A connection counts from its acceptance, so one that never ends its TLS
    handshake counts as well.
    """

    def __init__(self, host: str, port: int, connections: int, *, ends_oldest: bool = False) -> None:
        """Listen.

        Args:
            host: address or name to listen on.
            port: port to listen on; 0 takes a free one.
            connections: most connections (≥ 1).
            ends_oldest: whether one beyond them closes the oldest connection, and not itself.

        Raises:
            OSError: the server cannot listen on the port.
        """
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        super().__init__(family, kind, protocol)
        self._most = connections
        self._ends_oldest = ends_oldest
        self._open: dict[_Connection, None] = {}  # the oldest first
        try:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.bind(address)
            self.listen(_BACKLOG)
            self.setblocking(False)
        except OSError:
            self.close()
            raise

    def accept(self) -> tuple[socket.socket, object]:
        descriptor, address = self._accept()  # type: ignore[attr-defined]  # what socket.accept wraps in a socket
        connection = _Connection(self.family, self.type, self.proto, descriptor, self._open)
        if len(self._open) > self._most:
            if not self._ends_oldest:
                connection.close()
                raise ConnectionAbortedError  # asyncio goes on with the next connection
            oldest = next(iter(self._open))
            del self._open[oldest]
            with suppress(OSError):  # it may have ended by itself
                oldest.shutdown(socket.SHUT_RDWR)  # asyncio closes it
        return connection, address


class _Connection(socket.socket):
    """Is among the `open_` ones until it is closed."""

    def __init__(self, family: int, kind: int, protocol: int, descriptor: int, open_: dict[_Connection, None]) -> None:
        super().__init__(family, kind, protocol, fileno=descriptor)
        self.setblocking(False)
        self._among = open_
        open_[self] = None

    def close(self) -> None:
        super().close()
        self._among.pop(self, None)
