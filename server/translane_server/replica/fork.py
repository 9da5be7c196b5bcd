"""Forks replicas from a process that has loaded the model.

The replicas share the weights: they are loaded once, and are once in memory and in the common cache of the CPUs. Each
replica has its own rows. Only a process with one thread forks safely, so these replicas run ONNX Runtime on their main
thread alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from translane_server.backend import Backend
from translane_server.errors import StartupError
from translane_server.replica.serve import receive_setup, run_replica
from translane_server.replica.server_connection import ServerConnection, ServerGoneError
from translane_server.replica.setup import ReplicaSetup

_log = logging.getLogger(__name__)
_Model = TypeVar("_Model")

_PR_SET_PDEATHSIG = 1  # of prctl(2)


def serve_forked(
    connections: Sequence[socket.socket],
    load: Callable[[ReplicaSetup], _Model],
    open_backend: Callable[[ReplicaSetup, _Model], Backend],
    reports: int,
) -> int:
    """Load the model, fork a child for each replica, and wait until all children have ended.

    Args:
        connections: socket of each replica.
        load: loads the model, which the replicas share, with the setup of the first replica.
        open_backend: makes the backend of one replica.
        reports: file descriptor of a pipe. The process writes the line "N pid P" when replica N has process P, and the
            line "N code C" when that process has ended. C is negative if a signal ended it.

    Returns:
        The exit code for this process.
    """
    servers = [ServerConnection(connection) for connection in connections]
    setups: list[ReplicaSetup] = []
    for server in servers:
        try:
            setup = receive_setup(server)
        except ServerGoneError:
            return 0
        # All setups have the same model and vocabulary. Only one copy is kept, because vocabularies are large.
        setups.append(replace(setup, model=setups[0].model, vocabulary=setups[0].vocabulary) if setups else setup)
    try:
        model = load(setups[0])
    except StartupError as error:
        for server in servers:
            _answer(server, error)
        return error.exit_code
    gc.collect()
    gc.freeze()  # a later collection would write to these objects, and so copy shared memory
    numbers: dict[int, int] = {}
    parent = os.getpid()
    for number, (connection, setup) in enumerate(zip(connections, setups, strict=True)):
        try:
            pid = os.fork()
        except OSError as error:
            _answer(servers[number], StartupError(f"replica {setup.number} cannot be started: {error.strerror}"))
            connection.close()
            continue
        if pid == 0:
            for other in connections[number + 1 :]:  # a copy here would keep the connection open
                other.close()
            os.close(reports)
            _end_with(parent)
            _become(servers[number], setup, lambda setup: open_backend(setup, model))
        connection.close()
        numbers[pid] = number
        _tell(reports, f"{number} pid {pid}")
    while numbers:
        pid, status = os.wait()
        _tell(reports, f"{numbers.pop(pid)} code {os.waitstatus_to_exitcode(status)}")
    return 0


def _become(server: ServerConnection, setup: ReplicaSetup, open_backend: Callable[[ReplicaSetup], Backend]) -> None:
    """Run a replica, and end the process. Does not return."""
    code = 1
    try:
        code = run_replica(server, setup, open_backend)
    except BaseException:  # noqa: BLE001 no error may continue in the code of the parent
        _log.exception("replica %d failed", setup.number)
    finally:
        os._exit(code)


def _end_with(parent: int) -> None:
    """Kill this process when `parent` ends: without it, nobody would report the end of this process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent has ended already
        os._exit(1)


def _tell(reports: int, line: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # the server has gone
        os.write(reports, f"{line}\n".encode())


def _answer(server: ServerConnection, error: StartupError) -> None:
    with contextlib.suppress(ServerGoneError):
        server.send(error)
