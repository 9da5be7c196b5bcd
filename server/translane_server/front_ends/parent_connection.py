"""A front end's end of the socket to its parent."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import threading
import time
from typing import Any

from translane_server.replica.messages import RECEIVED_AT_ONCE, Frames, framed

# A front end that is still there so long after its parent has gone is ended by force [seconds].
_ENDING_TIME = 10.0


class ParentConnection:
    """The front end's end of the socket to its parent.

    Args:
        connection: the socket.

    Attributes:
        gone: set when the parent has closed the connection, or has ended.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.gone = asyncio.Event()
        self._connection = connection
        self._frames = Frames()
        self._received: list[Any] = []
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def open(self) -> None:
        """Let this event loop read and write. Must be called first."""
        self._reader, self._writer = await asyncio.open_connection(sock=self._connection)
        threading.Thread(target=end_without_parent, args=(self._connection.fileno(),), daemon=True).start()

    async def receive(self) -> Any:
        """Wait for the next message; None if the parent has gone."""
        while not self._received:
            try:
                data = await self._reader.read(RECEIVED_AT_ONCE)
            except ConnectionResetError:
                data = b""
            if not data:
                self.gone.set()
                return None
            self._received += self._frames.feed(data)
        return self._received.pop(0)

    def send(self, message: object) -> None:
        """Send a message. It is lost if the parent has gone."""
        if not self.gone.is_set():
            self._writer.write(framed(message))

    async def sent(self) -> None:
        """Wait until all messages are on their way."""
        if not self.gone.is_set():
            await self._writer.drain()


def end_without_parent(descriptor: int) -> None:
    """End this process by force some seconds after the other end of the socket `descriptor` has closed.

    The event loop may hang, and would not notice that the parent has gone. This runs on a thread of its own, which
    sleeps in the kernel until then.
    """
    closed = select.poll()
    closed.register(descriptor, 0)  # without any event, poll tells of the other end alone
    closed.poll()
    time.sleep(_ENDING_TIME)
    os._exit(1)
