"""A port that several processes of this server share, and no other server."""

from __future__ import annotations

import errno
import socket


class ReservedPort:
    """Keeps a port for the front ends, which listen on it with SO_REUSEPORT. It never listens itself.

    The kernel gives each new connection to one of the sockets that listen (socket(7)). It lets a socket join only where
    all others were made for it, by programs of the same user. So the socket of this object keeps other servers away,
    also while no front end listens.

    Args:
        host: address or name to listen on.
        port: the port; 0 takes a free one.

    Raises:
        OSError: the port is taken, or the host is not an address of this machine.
    """

    def __init__(self, host: str, port: int) -> None:
        # A socket with SO_REUSEPORT could join the front ends of another server. One without it finds them.
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in addresses:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        family, kind, protocol, _, address = addresses[0]
        self._socket = socket.socket(family, kind, protocol)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._bind(address)
        except OSError:
            self.close()
            raise
        self.number: int = self._socket.getsockname()[1]

    def close(self) -> None:
        """Give the port free."""
        self._socket.close()

    def _bind(self, address: object) -> None:
        try:
            self._socket.bind(address)  # type: ignore[arg-type]  # what getaddrinfo gives
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            # Connections of a server that has just ended stand in the way for a minute (TIME_WAIT). With SO_REUSEADDR
            # they do not, but then the port is less guarded until the first front end listens.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(address)  # type: ignore[arg-type]
