"""Connections that come from another address of this machine, as if from another machine."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

# All of 127.0.0.0/8 is this machine. Callers who do not choose an address have 127.0.0.1.
OTHER = "127.0.0.3"
_AT_ONCE = 65536  # bytes


@contextlib.asynccontextmanager
async def from_other_address(address: str) -> AsyncIterator[str]:
    """Forward connections to `address` from another address. The block's value is where to connect instead."""
    host, _, port = address.rpartition(":")
    pumps: set[asyncio.Task[None]] = set()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(host, int(port), local_addr=(OTHER, 0))
        except OSError:
            writer.close()
            return
        for source, target in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(_pump(source, target))
            pumps.add(task)
            task.add_done_callback(pumps.discard)

    server = await asyncio.start_server(forward, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in list(pumps):
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_AT_ONCE):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
