"""A replica's end of its socket to the server."""

from __future__ import annotations

import select
import socket
from typing import Any

from translane_server.replica.messages import (
    RECEIVED_AT_ONCE,
    Frames,
    Orders,
    framed,
    pack_report,
    unpack_orders,
)
from translane_server.replica.seam import Report


class ServerGoneError(Exception):
    """The server has closed the connection, or has ended."""


class ServerConnection:
    """Reads what the server sends, and writes what it is told.

    Args:
        connection: to the server; its owner closes it.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._arrivals = select.poll()  # costs less than a read that finds nothing
        self._arrivals.register(connection, select.POLLIN)
        self._frames = Frames()

    def receive(self) -> list[Any]:
        """Wait for bytes; return the messages that are complete by now.

        Raises:
            ServerGoneError: there will be no more.
        """
        try:
            data = self._connection.recv(RECEIVED_AT_ONCE)
        except ConnectionResetError:
            data = b""
        if not data:
            raise ServerGoneError
        return self._frames.feed(data)

    def orders(self, *, wait: bool) -> list[Orders]:
        """The orders that have come; with `wait`, after some bytes have.

        Raises:
            ServerGoneError: there will be no more.
        """
        return [unpack_orders(each) for each in self.receive()] if wait or self._arrivals.poll(0) else []

    def report(self, report: Report) -> None:
        """Send a report.

        Raises:
            ServerGoneError: nobody reads it.
        """
        self.send(pack_report(report))

    def send(self, message: object) -> None:
        """Send a message.

        Raises:
            ServerGoneError: nobody reads it.
        """
        try:
            self._connection.sendall(framed(message))
        except (BrokenPipeError, ConnectionResetError):
            raise ServerGoneError from None
