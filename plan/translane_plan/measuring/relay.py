"""Passes bytes on between a caller and a server, and counts them."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self

# A frame of Ethernet with a segment of TCP, without its data: 14 + 20 bytes, and 32 with TCP's time stamps.
_HEADERS = 66
_READ = 1 << 16


class Relay:
    """Listens on this machine, and passes on what comes; an asynchronous context manager.

    Args:
        address: HOST:PORT of the server.

    Attributes:
        address: where it listens.
        received: bytes that the server has received, with the headers of packets.
        sent: bytes that the server has sent, with the headers of packets.
    """

    def __init__(self, address: str) -> None:
        self._host, _, self._port = address.rpartition(":")
        self.address = ""
        self.received = self.sent = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection(self._host, int(self._port))
        for task in (
            asyncio.create_task(self._pass_on(reader, upstream_writer, to_server=True)),
            asyncio.create_task(self._pass_on(upstream_reader, writer, to_server=False)),
        ):
            self._tasks.add(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, to_server: bool) -> None:
        with contextlib.suppress(OSError), contextlib.closing(writer):
            while data := await reader.read(_READ):
                self._count(len(data), to_server=to_server)
                writer.write(data)
                await writer.drain()

    def _count(self, size: int, *, to_server: bool) -> None:
        """Count a packet, and the packet that acknowledges it."""
        there, back = size + _HEADERS, _HEADERS
        self.received += there if to_server else back
        self.sent += back if to_server else there
