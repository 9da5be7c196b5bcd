"""Replicas that fork from a process which has loaded the model.

So its weights are in memory once however many replicas read them, in the processors' common cache, too; and they are
loaded once. What each replica writes, its rows above all, it has for itself. Only a process of one thread forks safely:
these are replicas on one thread of ONNX Runtime each, which is the one that calls it.
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
from translane_server.replica.connection import ServerConnection, ServerGoneError
from translane_server.replica.serve import decode, receive_setup
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
    """Load what the first connection tells of, serve each in a process of its own, and wait until all have ended.

    Args:
        connections: of the replicas.
        load: what they share.
        open_backend: what each has for itself.
        reports: descriptor of a pipe, which is told "N pid P" of replica N when there is process P, and "N code C" when
            it has ended; C is negative where a signal has ended it.

    Returns:
        The exit code of a process that does nothing else.
    """
    servers = [ServerConnection(connection) for connection in connections]
    setups: list[ReplicaSetup] = []
    for server in servers:
        try:
            setup = receive_setup(server)
        except ServerGoneError:
            return 0
        # Each is told the same of the model, and that is large where the vocabulary is.
        setups.append(replace(setup, model=setups[0].model, vocabulary=setups[0].vocabulary) if setups else setup)
    try:
        model = load(setups[0])
    except StartupError as error:
        for server in servers:
            _answer(server, error)
        return error.exit_code
    gc.collect()
    gc.freeze()  # a collection writes to all it looks at, and memory that is written to is shared no longer
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
            for other in connections[number + 1 :]:  # held open here, nobody would see them close
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
    """Be a replica to the end; does not return."""
    code = 1
    try:
        code = decode(server, setup, open_backend)
    except BaseException:  # noqa: BLE001 whatever it is, this must not go back to what has forked
        _log.exception("replica %d failed", setup.number)
    finally:
        os._exit(code)


def _end_with(parent: int) -> None:
    """Have this process killed when `parent`, which it was forked from, is: nobody else would tell how it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended before
        os._exit(1)


def _tell(reports: int, line: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # the server has gone
        os.write(reports, f"{line}\n".encode())


def _answer(server: ServerConnection, error: StartupError) -> None:
    with contextlib.suppress(ServerGoneError):
        server.send(error)
