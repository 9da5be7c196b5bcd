"""What runs where a replica is: one worker, which reads its tasks from a socket between two steps."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from translane_server.backend import Backend
from translane_server.errors import StartupError
from translane_server.replica.connected_ledger import ConnectedLedger
from translane_server.replica.messages import RECEIVED_AT_ONCE, Frames, framed
from translane_server.replica.setup import ReplicaSetup
from translane_server.worker import Worker


def serve(connection: socket.socket, open_backend: Callable[[ReplicaSetup], Backend]) -> int:
    """Decode what comes over `connection` until its other end closes, on a backend that suits what is told first.

    Returns:
        The exit code of a process that does nothing else.
    """
    frames = Frames()
    setup = receive_setup(connection, frames)
    return 0 if setup is None else decode(connection, frames, setup, open_backend)


def receive_setup(connection: socket.socket, frames: Frames) -> ReplicaSetup | None:
    """What is told first; None if the server has gone before."""
    try:
        while data := connection.recv(RECEIVED_AT_ONCE):
            if messages := frames.feed(data):
                setup: ReplicaSetup
                (setup,) = messages  # nothing else is sent until the answer
                return setup
    except ConnectionResetError:
        pass
    return None


def decode(
    connection: socket.socket, frames: Frames, setup: ReplicaSetup, open_backend: Callable[[ReplicaSetup], Backend]
) -> int:
    """Decode what comes after the setup; returns what `serve` does."""
    try:
        try:
            backend = open_backend(setup)
        except StartupError as error:
            connection.sendall(framed(error))
            return error.exit_code
        connection.sendall(framed(None))
    except (BrokenPipeError, ConnectionResetError):  # the server has gone
        return 0
    ledger = ConnectedLedger(connection, frames, setup.encode_tokens)
    worker = Worker(f"replica {setup.number}", backend, ledger, setup.vocabulary, ledger.recorder, time.perf_counter)
    worker.run()
    return 0 if ledger.failed is None else 1
