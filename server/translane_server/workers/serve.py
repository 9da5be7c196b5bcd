"""Runs a replica: receives the setup, opens the backend, and runs the loop."""

from __future__ import annotations

import socket
from collections.abc import Callable

from translane_server.core.errors import StartupError
from translane_server.runtime.backend import Backend
from translane_server.workers.activity import Activity, SharedActivity
from translane_server.workers.loop import ReplicaLoop
from translane_server.workers.messages import Ready
from translane_server.workers.server_connection import ServerConnection, ServerGoneError
from translane_server.workers.setup import ReplicaSetup


def serve(connection: socket.socket, open_backend: Callable[[ReplicaSetup], Backend]) -> int:
    """Run a replica on `connection` until the server closes it.

    Args:
        connection: socket to the server; the caller closes it.
        open_backend: makes the backend for the setup.

    Returns:
        The exit code for a process of this replica.
    """
    server = ServerConnection(connection)
    try:
        setup = receive_setup(server)
    except ServerGoneError:
        return 0
    return run_replica(server, setup, open_backend, SharedActivity().of(setup.number))


def receive_setup(server: ServerConnection) -> ReplicaSetup:
    """Wait for the setup, which is the server's first message.

    Raises:
        ServerGoneError: the server has closed the connection.
    """
    while not (messages := server.receive()):
        pass
    setup: ReplicaSetup
    (setup,) = messages  # the server sends nothing else before the answer
    return setup


def run_replica(
    server: ServerConnection,
    setup: ReplicaSetup,
    open_backend: Callable[[ReplicaSetup], Backend],
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
    return 0 if ReplicaLoop(backend, server, setup.vocabulary, activity).run() else 1
