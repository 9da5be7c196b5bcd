"""The replica's side: receives the setup, opens the backend, and runs the loop."""

from __future__ import annotations

import contextlib
import mmap
import select
import socket
from collections.abc import Callable
from typing import Any

from translane_server.core.errors import StartupError
from translane_server.engine.loop import EngineLoop, ServerGoneError
from translane_server.engine.sequence import EngineInput, EngineOutput
from translane_server.runtime.backend import Backend
from translane_server.workers.messages import (
    RECEIVED_AT_ONCE,
    Frames,
    Ready,
    WorkerSetup,
    framed,
    pack_output,
    unpack_input,
)

_MOST_REPLICAS = 1024  # the largest value of the setting `replicas`


class Activity:
    """Whether a replica is at work, and whether others are. Processes that are forked later share it.

    A replica writes its own byte alone, so no lock is needed. What it reads of others may be a moment old.
    """

    def __init__(self, number: int, states: mmap.mmap | None = None) -> None:
        self._number = number
        self._states = states or mmap.mmap(-1, _MOST_REPLICAS)  # a byte of each replica

    def of(self, number: int) -> Activity:
        """The activity of the replica `number`, which this one sees."""
        return Activity(number, self._states)

    def set(self, works: bool) -> None:
        """The replica has work; or it has none, or has ended."""
        self._states[self._number] = int(works)

    def is_alone(self) -> bool:
        """Whether no other replica is at work."""
        states = self._states[:]
        return states.count(True) <= states[self._number]


class SocketLink:
    """The server at the other end of a socket. Implements `engine.loop.ServerLink`.

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

    def inputs(self, *, wait: bool) -> list[EngineInput]:
        return [unpack_input(each) for each in self.receive()] if wait or self.has_arrivals() else []

    def put(self, output: EngineOutput) -> None:
        self.send(pack_output(output))

    def send(self, message: object) -> None:
        """Send a message.

        Raises:
            ServerGoneError: the server has closed the connection.
        """
        try:
            self._connection.sendall(framed(message))
        except (BrokenPipeError, ConnectionResetError):
            raise ServerGoneError from None


def serve(connection: socket.socket, open_backend: Callable[[WorkerSetup], Backend]) -> int:
    """Run a replica on `connection` until the server closes it.

    Args:
        connection: socket to the server; the caller closes it.
        open_backend: makes the backend for the setup.

    Returns:
        The exit code for a process of this replica.
    """
    server = SocketLink(connection)
    try:
        setup = receive_setup(server)
    except ServerGoneError:
        return 0
    return run_replica(server, setup, open_backend, Activity(setup.number))


def receive_setup(server: SocketLink) -> WorkerSetup:
    """Wait for the setup, which is the server's first message.

    Raises:
        ServerGoneError: the server has closed the connection.
    """
    while not (messages := server.receive()):
        pass
    setup: WorkerSetup
    (setup,) = messages  # the server sends nothing else before the answer
    return setup


def run_replica(
    server: SocketLink,
    setup: WorkerSetup,
    open_backend: Callable[[WorkerSetup], Backend],
    activity: Activity,
) -> int:
    """Open the backend, tell the server, and run the loop; see `serve` for the result."""
    try:
        try:
            backend = open_backend(setup)
        except StartupError as error:
            server.send(error)
            return error.exit_code
        server.send(Ready())
    except ServerGoneError:
        return 0
    with contextlib.closing(backend):
        return 0 if EngineLoop(backend, server, setup.vocabulary, activity.set).run() else 1
