"""The listening socket of the HTTP port. It counts its connections, and closes one beyond the limit at once."""

from __future__ import annotations

import socket
from collections.abc import Callable

# Connections that wait to be accepted.
_BACKLOG = 512


class Listener(socket.socket):
    """A socket that listens, with at most `connections` connections.

    asyncio does not limit connections. A connection counts from its acceptance, so one that never ends its TLS
    handshake counts as well.
    """

    def __init__(self, host: str, port: int, connections: int) -> None:
        """Listen.

        Args:
            host: address or name to listen on.
            port: port to listen on; 0 takes a free one.
            connections: most connections (≥ 1).

        Raises:
            OSError: the server cannot listen on the port.
        """
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        super().__init__(family, kind, protocol)
        self._most = connections
        self._open = 0
        try:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.bind(address)
            self.listen(_BACKLOG)
            self.setblocking(False)
        except OSError:
            self.close()
            raise

    @property
    def port(self) -> int:
        """The port."""
        port: int = self.getsockname()[1]
        return port

    def accept(self) -> tuple[socket.socket, object]:
        descriptor, address = self._accept()  # type: ignore[attr-defined]  # what socket.accept wraps in a socket
        connection = _Connection(self.family, self.type, self.proto, descriptor, self._closed_one)
        self._open += 1
        if self._open > self._most:
            connection.close()
            raise ConnectionAbortedError  # asyncio goes on with the next connection
        return connection, address

    def _closed_one(self) -> None:
        self._open -= 1


class _Connection(socket.socket):
    """Tells when it is closed."""

    def __init__(self, family: int, kind: int, protocol: int, descriptor: int, closed: Callable[[], None]) -> None:
        super().__init__(family, kind, protocol, fileno=descriptor)
        self.setblocking(False)
        self._tell: Callable[[], None] | None = closed

    def close(self) -> None:
        super().close()
        if tell := self._tell:
            self._tell = None
            tell()
