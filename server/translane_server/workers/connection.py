"""The server's end of the socket to a worker."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

from translane_server.core.errors import StartupError
from translane_server.engine.sequence import EngineInput, EngineOutput, Sequence
from translane_server.observation.logs import data
from translane_server.workers.messages import (
    RECEIVED_AT_ONCE,
    Frames,
    Ready,
    WorkerSetup,
    of_input,
    of_object,
    read_output,
)

_log = logging.getLogger(__name__)


class Host(Protocol):
    """The place where the lives of a worker run, one after the other. The methods may block."""

    @property
    def pid(self) -> int:
        """The id of the replica's process; -1 if there is none."""

    def launch(self, connection: socket.socket) -> None:
        """Start a replica that serves `connection`. The caller closes its own copy of `connection` afterwards.

        Raises:
            OSError: the operating system has no resources for the replica.
        """

    def end(self, *, at_once: bool) -> str:
        """Wait until the last replica has ended, or end it; return how it ended, such as "ended with exit code 1".

        A replica ends by itself when its connection closes. With `at_once`, nobody waits for that.
        """


class WorkerConnection(asyncio.BufferedProtocol):
    """One life of a worker, at the other end of a socket.

    The worker gets its setup first, and answers when it is ready. Then all orders of one turn of the event loop are
    sent in one message.
    """

    def __init__(self, setup: WorkerSetup, host: Host) -> None:
        self.name = f"replica {setup.number}"  # the name of the worker in log lines and errors
        self.facts = data(model=setup.model.name)  # the worker's model, for log lines
        self.rows = setup.rows  # maximum number of hypotheses that decode at once
        self.heard = 0  # number of messages that have come from the worker
        self._setup = setup
        self._host = host
        self._frames = Frames()
        self._buffer = memoryview(bytearray(RECEIVED_AT_ONCE))
        self._on_output: Callable[[WorkerConnection, EngineOutput], None]
        self._on_loss: Callable[[WorkerConnection], None]
        self._loop: asyncio.AbstractEventLoop
        self._ready: asyncio.Future[None] | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._ending: asyncio.Task[None] | None = None
        self._serves = False  # before, the worker loads the model, and does not notice a closed connection
        self._stopping = False
        self._launching: asyncio.Future[None] | None = None
        self._launched = False
        # What is not sent yet.
        self._sequences: list[Sequence] = []
        self._cancelled: list[int] = []
        self._asks = False
        self._sends_soon = False

    async def start(
        self,
        on_output: Callable[[WorkerConnection, EngineOutput], None],
        on_loss: Callable[[WorkerConnection], None],
    ) -> None:
        """Start the worker, and wait until it is ready.

        Args:
            on_output: called with each output of the worker.
            on_loss: called if the worker ends, though it served and was not stopped. Its sequences are lost.

        Raises:
            StartupError: the worker cannot start.
        """
        self._on_output, self._on_loss = on_output, on_loss
        self._loop = asyncio.get_running_loop()
        self._ready = self._loop.create_future()
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise self._refusal(error) from None
        try:
            transport, _ = await self._loop.connect_accepted_socket(lambda: self, ours)
            if self._stopping:
                raise StartupError(f"{self.name} was stopped before it started")
            transport.write(of_object(self._setup))
            self._launching = self._loop.run_in_executor(None, self._launch, theirs)
        except BaseException:
            theirs.close()  # an executor that gets no thread raises, but may run the call later
            raise
        await asyncio.shield(self._launching)
        await self._ready

    @property
    def pid(self) -> int:
        """The id of the worker's process; -1 if there is none."""
        return self._host.pid

    def cpu_time(self) -> int:
        """Processor time of the worker [clock ticks]; 0 if it is not known."""
        return _cpu_ticks(self.pid)

    def submit(self, sequence: Sequence) -> None:
        """Decode a sequence. An output has it when it has ended."""
        self._sequences.append(sequence)
        self._send_soon()

    def cancel(self, number: int) -> None:
        """Drop the sequence of this number, unless it has ended. An output has it in either case."""
        self._cancelled.append(number)
        self._send_soon()

    def ask(self) -> None:
        """Ask for an output, even an empty one, unless the worker is still loading."""
        if self._serves:
            self._asks = True
            self._send_soon()

    async def kill(self) -> None:
        """End the worker, which may hang. It counts as lost."""
        await asyncio.to_thread(self._host.end, at_once=True)

    async def stop(self) -> None:
        """End the worker: one that serves ends by itself. Its sequences are lost."""
        self._stopping = True
        if self._transport:
            self._transport.abort()
        if self._launching:
            await asyncio.wait([self._launching])
        if self._ready:
            self._ready.cancel()
        if self._launched:
            if self._ending:
                await asyncio.shield(self._ending)  # whoever stops waiting leaves the reason to the log
            else:
                await asyncio.to_thread(self._host.end, at_once=not self._serves)

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

    def _send_soon(self) -> None:
        if not self._sends_soon:
            self._sends_soon = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._sends_soon = False
        told = EngineInput(self._sequences, self._cancelled, self._asks)
        self._sequences, self._cancelled, self._asks = [], [], False
        if self._transport:
            self._transport.write(of_input(told))

    # Methods of asyncio.BufferedProtocol. A plain asyncio.Protocol would allocate new memory for each read.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 one size suits all
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        scheduled, self._sends_soon = self._sends_soon, True
        for body in self._frames.feed(self._buffer[:nbytes]):
            self.heard += 1
            if self._serves:
                self._on_output(self, read_output(body))
            else:
                self._take_first(pickle.loads(body))  # noqa: S301 from this program
        if not scheduled:  # new orders after an output are sent at once, without a turn of the event loop
            self._sends_soon = False
            if self._sequences or self._cancelled or self._asks:
                self._flush()

    def _take_first(self, message: Any) -> None:
        """Take the message of a worker that starts: it is ready, or tells what stops it."""
        if self._ready is None or self._ready.done():  # nobody waits for the answer any more
            return
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
            self._on_loss(self)  # before the reason is known, so that it gets no more to do
        ending = await asyncio.to_thread(self._host.end, at_once=False)
        reason = f"{self.name} {ending}"
        if self._serves:
            _log.error("%s", reason, extra=self.facts)
        elif self._ready and not self._ready.done():
            self._ready.set_exception(StartupError(f"{reason} while it loaded the model"))


def _cpu_ticks(pid: int) -> int:
    """Processor time of a process [clock ticks], on systems with /proc (see proc(5)); else 0."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    fields = status.rpartition(b")")[2].split()  # the name of the program, in brackets, may hold anything
    return int(fields[11]) + int(fields[12])  # fields 14 and 15 of the whole line: utime and stime
