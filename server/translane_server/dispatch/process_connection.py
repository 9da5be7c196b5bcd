"""The end of the socket to a process that this process starts: a replica, or a front end."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from pathlib import Path
from typing import Any, Protocol, cast

from translane_server.errors import StartupError
from translane_server.replica.messages import RECEIVED_AT_ONCE, Frames, Ready, framed

_log = logging.getLogger(__name__)


class Host(Protocol):
    """The place where processes run, one after the other. The methods may block."""

    @property
    def pid(self) -> int:
        """The id of the process; -1 if there is none."""

    def launch(self, connection: socket.socket) -> None:
        """Start a process that serves `connection`. The caller closes its own copy of `connection` afterwards.

        Raises:
            OSError: the operating system has no resources for the process.
        """

    def end(self, *, at_once: bool) -> str:
        """Wait until the last process has ended, or end it. A process ends by itself when its connection closes.

        Args:
            at_once: whether to end the process without waiting.

        Returns:
            How the process ended, such as "ended with exit code 1".
        """


class ProcessConnection(asyncio.BufferedProtocol):
    """A process at the other end of a socket. It gets its setup first, and answers when it is ready.

    Args:
        name: the name of the process in log lines and errors.
        setup: the first message to the process.
        host: runs the process.

    Attributes:
        name: the name of the process.
        heard: number of messages that have come from the process.
    """

    def __init__(self, name: str, setup: object, host: Host) -> None:
        self.name = name
        self.heard = 0
        self._setup = setup
        self._host = host
        self._frames = Frames()
        self._buffer = memoryview(bytearray(RECEIVED_AT_ONCE))
        self._listener: Any  # of the type that `start` of each kind of process takes
        self._loop: asyncio.AbstractEventLoop
        self._ready: asyncio.Future[None] | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._ending: asyncio.Task[None] | None = None
        self._serves = False  # before, the process starts, and may not notice a closed connection
        self._stopping = False
        self._launching: asyncio.Future[None] | None = None
        self._launched = False

    async def start(self, listener: Any) -> None:
        """Start the process, and wait until it is ready.

        Args:
            listener: learns that the process is lost.

        Raises:
            StartupError: the process cannot start.
        """
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._ready = self._loop.create_future()
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise self._refusal(error) from None
        try:
            await self._loop.connect_accepted_socket(lambda: self, ours)
        except BaseException:
            theirs.close()
            raise
        if self._stopping:
            theirs.close()
            raise StartupError(f"{self.name} was stopped before it started")
        self._write(self._setup)
        self._launching = self._loop.run_in_executor(None, self._launch, theirs)
        await asyncio.shield(self._launching)
        await self._ready

    def cpu_time(self) -> int:
        """Processor time of the process [clock ticks]; 0 if it is not known."""
        return cpu_ticks(self._host.pid)

    async def kill(self) -> None:
        """End the process, which may hang. The listener learns that it is lost."""
        await asyncio.to_thread(self._host.end, at_once=True)

    async def stop(self) -> None:
        """End the process: one that serves ends by itself."""
        self._stopping = True
        if self._transport:
            self._transport.abort()
        if self._launching:
            await asyncio.wait([self._launching])
        if self._ready:
            self._ready.cancel()
        if self._launched:
            if self._ending:
                await self._ending
            else:
                await asyncio.to_thread(self._host.end, at_once=not self._notices_end)

    @property
    def _notices_end(self) -> bool:
        """Whether the process ends by itself when the connection closes."""
        return self._serves

    def _take(self, message: Any) -> None:
        """Take a message of a process that is ready."""
        raise NotImplementedError

    def _launch(self, connection: socket.socket) -> None:
        with connection:
            try:
                self._launched = True
                self._host.launch(connection)
            except OSError as error:
                self._launched = False
                raise self._refusal(error) from None

    def _refusal(self, error: OSError) -> StartupError:
        reason = os.strerror(error.errno) if error.errno else str(error)
        return StartupError(f"{self.name} cannot be started: {reason}")

    def _write(self, message: object) -> None:
        if self._transport:
            self._transport.write(framed(message))

    # Methods of asyncio.BufferedProtocol. A plain asyncio.Protocol would allocate new memory for each read.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 one size suits all
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._received(self._buffer[:nbytes])

    def _received(self, data: memoryview) -> None:
        for message in self._frames.feed(data):
            self.heard += 1
            if self._serves:
                self._take(message)
            elif self._ready is None or self._ready.done():  # nobody waits for the answer any more
                return
            else:
                self._take_first(message)

    def _take_first(self, message: Any) -> None:
        """Take a message of a process that starts: it is ready, or tells what stops it."""
        assert self._ready is not None, "somebody waits for the answer"
        if isinstance(message, Ready):
            self._serves = True
            self._ready.set_result(None)
        else:
            self._ready.set_exception(message)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 the reason does not matter
        self._transport = None
        if self._launched and not self._stopping:
            self._ending = self._loop.create_task(self._tell_why())

    async def _tell_why(self) -> None:
        if self._serves:
            self._listener.lost(self)  # before the reason is known, so that it gets no more to do
        ending = await asyncio.to_thread(self._host.end, at_once=False)
        reason = f"{self.name} {ending}"
        if self._serves:
            _log.error("%s", reason)
        elif self._ready and not self._ready.done():
            self._ready.set_exception(StartupError(f"{reason} while it loaded the model"))


def cpu_ticks(pid: int) -> int:
    """Processor time of a process [clock ticks], on systems with /proc (see proc(5)); else 0."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    fields = status.rpartition(b")")[2].split()  # the name of the program, in brackets, may hold anything
    return int(fields[11]) + int(fields[12])  # fields 14 and 15 of the whole line: utime and stime
