"""The server's end of the socket to a replica."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from typing import Protocol, cast

from translane_server.errors import StartupError
from translane_server.replica.interface import ReplicaListener
from translane_server.replica.messages import (
    RECEIVED_AT_ONCE,
    Frames,
    Orders,
    Ready,
    framed,
    pack_orders,
    unpack_report,
)
from translane_server.replica.setup import ReplicaSetup
from translane_server.sentence import Task

_log = logging.getLogger(__name__)


class Host(Protocol):
    """The place where a replica runs, such as a process. The methods may block."""

    def launch(self, connection: socket.socket) -> None:
        """Start the replica that serves `connection`. The caller closes its own copy of `connection` afterwards.

        Raises:
            OSError: the operating system has no resources for the replica.
        """

    def end(self, *, at_once: bool) -> str:
        """Wait until the replica has ended, or end it. A replica ends by itself when its connection closes.

        Args:
            at_once: whether to end the replica without waiting.

        Returns:
            How the replica ended, such as "ended with exit code 1".
        """


class ReplicaConnection(asyncio.BufferedProtocol):
    """A replica at the other end of a socket. Implements `Replica`.

    All orders of one turn of the event loop are sent in one message.

    Args:
        setup: the setup of the replica.
        host: runs the replica.
    """

    def __init__(self, setup: ReplicaSetup, host: Host) -> None:
        self._setup = setup
        self._host = host
        self._frames = Frames()
        self._buffer = memoryview(bytearray(RECEIVED_AT_ONCE))
        self._listener: ReplicaListener
        self._loop: asyncio.AbstractEventLoop
        self._ready: asyncio.Future[None]
        self._transport: asyncio.WriteTransport | None = None
        self._tasks: list[Task] = []  # tasks that are not sent yet
        self._cancelled: list[int] = []  # numbers of tasks, not sent yet
        self._sends_soon = False
        self._ending: asyncio.Task[None] | None = None
        self._serves = False  # before, the replica loads the model, and does not notice a closed connection
        self._stopping = False
        self._launched = False

    @property
    def rows(self) -> int:
        return self._setup.rows

    async def start(self, listener: ReplicaListener) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._ready = self._loop.create_future()
        await self._loop.connect_accepted_socket(lambda: self, self._launch())
        self._write(self._setup)
        await self._ready

    def submit(self, task: Task) -> None:
        self._tasks.append(task)
        self._send_soon()

    def cancel(self, number: int) -> None:
        self._cancelled.append(number)
        self._send_soon()

    async def stop(self) -> None:
        self._stopping = True
        if self._transport:
            self._transport.abort()
        if self._launched:
            self._ready.cancel()
            await asyncio.to_thread(self._host.end, at_once=not self._serves)

    def _launch(self) -> socket.socket:
        """Start the replica; return this end of its socket."""
        try:
            ours, theirs = socket.socketpair()
            with theirs:
                try:
                    self._host.launch(theirs)
                except OSError:
                    ours.close()
                    raise
            self._launched = True
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise StartupError(f"replica {self._setup.number} cannot be started: {reason}") from None
        return ours

    def _send_soon(self) -> None:
        if not self._sends_soon:
            self._sends_soon = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._sends_soon = False
        if self._tasks or self._cancelled:
            orders = Orders(self._tasks, self._cancelled)
            self._tasks, self._cancelled = [], []
            self._write(pack_orders(orders))

    def _write(self, message: object) -> None:
        if self._transport:
            self._transport.write(framed(message))

    # Methods of asyncio.BufferedProtocol. A plain asyncio.Protocol would allocate new memory for each read.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 one size suits all
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        scheduled, self._sends_soon = self._sends_soon, True
        self._received(self._buffer[:nbytes])
        if not scheduled:  # new orders after a report are sent at once, without a turn of the event loop
            self._flush()

    def _received(self, data: memoryview) -> None:
        for message in self._frames.feed(data):
            if self._serves:
                self._listener.reported(self, unpack_report(message))
            elif self._ready.done():  # nobody waits for the answer any more
                return
            elif isinstance(message, Ready):
                self._serves = True
                self._ready.set_result(None)
            else:
                self._ready.set_exception(message)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 the reason does not matter
        self._transport = None
        if not self._stopping:
            self._ending = self._loop.create_task(self._tell_why())

    async def _tell_why(self) -> None:
        if self._serves:
            self._listener.lost(self)  # before the reason is known, so that no more orders are sent
        ending = await asyncio.to_thread(self._host.end, at_once=False)
        reason = f"replica {self._setup.number} {ending}"
        if self._serves:
            _log.error("%s", reason)
        elif not self._ready.done():
            self._ready.set_exception(StartupError(f"{reason} while it loaded the model"))
