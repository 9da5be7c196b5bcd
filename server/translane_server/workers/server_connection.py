"""The replica's end of the socket to the server."""

from __future__ import annotations

import select
import socket
from typing import Any

from translane_server.workers.interface import Report
from translane_server.workers.messages import (
    RECEIVED_AT_ONCE,
    Frames,
    Orders,
    framed,
    pack_report,
    unpack_orders,
)


class ServerGoneError(Exception):
    """The server has closed the connection or has ended."""


class ServerConnection:
    """Receives orders from the server, and sends reports. Implements `loop.Server`.

    Args:
        connection: socket to the server; the caller closes it.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._arrivals = select.poll()  # poll costs less than a read without data
        self._arrivals.register(connection, select.POLLIN)
        self._frames = Frames()

    def receive(self) -> list[Any]:
        """Wait for bytes; return the messages that are complete by now.

        Raises:
            ServerGoneError: the server has closed the connection.
        """
        try:
            data = self._connection.recv(RECEIVED_AT_ONCE)
        except ConnectionResetError:
            data = b""
        if not data:
            raise ServerGoneError
        return self._frames.feed(data)

    def has_arrivals(self) -> bool:
        return bool(self._arrivals.poll(0))

    def orders(self, *, wait: bool) -> list[Orders]:
        return [unpack_orders(each) for each in self.receive()] if wait or self.has_arrivals() else []

    def report(self, report: Report) -> None:
        self.send(pack_report(report))

    def send(self, message: object) -> None:
        """Send a message.

        Raises:
            ServerGoneError: the server has closed the connection.
        """
        try:
            self._connection.sendall(framed(message))
        except (BrokenPipeError, ConnectionResetError):
            raise ServerGoneError from None
