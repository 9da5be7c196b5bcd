"""Starts the processes of replicas, the first one ahead. It imports little, so that one may start at once."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

# Runs replicas; "serve", "fork" or "wait" and a file descriptor follow. -P: Python imports nothing from the working
# directory.
COMMAND = (sys.executable, "-P", "-m", "translane_server.workers")

# A decoder step makes some hundred small objects, and frees them together. glibc keeps 7 of each size at hand; with as
# many as a step has, a step of a small model takes 3 to 8% less processor time. What is set already counts.
_MALLOC = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=64"}

_waiting: list[tuple[subprocess.Popen[bytes], socket.socket]] = []  # processes for the next replicas


@contextlib.contextmanager
def process_ahead() -> Iterator[None]:
    """Start a process for the first replica, which imports what it needs while this process does the same.

    If it is not needed, it ends with the context. Threads may be within such contexts at the same time.
    """
    control, theirs = socket.socketpair()
    waiting: Any = None
    with theirs, contextlib.suppress(OSError):  # the replica is started later, and says what is wrong
        waiting = _new_process(COMMAND, "wait", theirs), control
        _waiting.append(waiting)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # a replica has taken it
            _waiting.remove(waiting)
            waiting[0].kill()
            waiting[0].wait()
        control.close()


def started(command: Sequence[str], how: str, connection: socket.socket) -> subprocess.Popen[bytes]:
    """A process that serves `connection`: the one that waits, if there is one, or a new one.

    Raises:
        OSError: the operating system has no resources for it.
    """
    if command == COMMAND:
        with contextlib.suppress(IndexError, OSError):  # none waits, or it has ended
            process, control = _waiting.pop()
            with control:
                socket.send_fds(control, [how.encode()], [connection.fileno()])
            return process
    return _new_process(command, how, connection)


def _new_process(command: Sequence[str], how: str, connection: socket.socket) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 it runs this program
        [*command, how, str(connection.fileno())],
        pass_fds=[connection.fileno()],
        env={**_MALLOC, **os.environ},  # noqa: TID251 - passed on, with glibc's setting
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C in a terminal must reach only the server
    )


def ended(process: subprocess.Popen[bytes], seconds: float) -> int:
    """The exit code of a process that ends within `seconds`, or is killed then."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
