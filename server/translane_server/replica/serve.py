"""What runs where a replica is: it receives its setup, opens its backend, and decodes what is ordered."""

from __future__ import annotations

import socket
from collections.abc import Callable

from translane_server.backend import Backend
from translane_server.errors import StartupError
from translane_server.replica.connection import ServerConnection, ServerGoneError
from translane_server.replica.loop import ReplicaLoop
from translane_server.replica.messages import Ready
from translane_server.replica.setup import ReplicaSetup


def serve(connection: socket.socket, open_backend: Callable[[ReplicaSetup], Backend]) -> int:
    """Decode what comes over `connection` until its other end closes, on a backend that suits what is told first.

    Returns:
        The exit code of a process that does nothing else.
    """
    server = ServerConnection(connection)
    try:
        setup = receive_setup(server)
    except ServerGoneError:
        return 0
    return decode(server, setup, open_backend)


def receive_setup(server: ServerConnection) -> ReplicaSetup:
    """What is told first.

    Raises:
        ServerGoneError: nothing was.
    """
    while not (messages := server.receive()):
        pass
    setup: ReplicaSetup
    (setup,) = messages  # nothing else is sent until the answer
    return setup


def decode(server: ServerConnection, setup: ReplicaSetup, open_backend: Callable[[ReplicaSetup], Backend]) -> int:
    """Decode what comes after the setup; returns what `serve` does."""
    try:
        try:
            backend = open_backend(setup)
        except StartupError as error:
            server.send(error)
            return error.exit_code
        server.send(Ready())
    except ServerGoneError:
        return 0
    return 0 if ReplicaLoop(backend, server, setup.vocabulary).run() else 1
