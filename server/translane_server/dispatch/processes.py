"""Runs replicas in processes."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import TextIO

# Time for a process to finish its step before it is killed [seconds].
_ENDING_TIME = 5.0

# Runs replicas; an argument with file descriptors follows. -P: Python imports nothing from the working directory.
_COMMAND = (sys.executable, "-P", "-m", "translane_server.replica")


class ProcessHost:
    """Runs a replica in its own process. Implements `Host`."""

    def __init__(self, group: _Group, number: int) -> None:
        self._group = group
        self._number = number

    @property
    def pid(self) -> int:
        """The id of the process; -1 if the process does not run."""
        return self._group.pid(self._number)

    def launch(self, connection: socket.socket) -> None:
        """Start the replica. The processes of a group start when the last of them is launched."""
        self._group.launch(self._number, connection)

    def end(self, *, at_once: bool) -> str:
        return self._group.end(self._number, at_once=at_once)


def process_hosts(count: int, threads: int, command: Sequence[str] = _COMMAND) -> list[ProcessHost]:
    """Make hosts for `count` replicas of one model, with `threads` threads each.

    Replicas of one thread fork from one process, which loads the model; see `replica.fork`. Replicas of several threads
    are started one by one.
    """
    sizes = [count] if threads == 1 else [1] * count
    return [ProcessHost(group, number) for size in sizes for group in [_Group(size, command)] for number in range(size)]


class _Group:
    """The process for `size` replicas, and its children.

    For one replica, the process runs the replica itself. For several replicas, the process forks a child for each
    replica. The process reports each child over a pipe, because only a parent learns how its child ends; see
    `replica.fork.serve_forked`.
    """

    def __init__(self, size: int, command: Sequence[str]) -> None:
        self._size = size
        self._command = command
        self._connections: dict[int, socket.socket] = {}  # of replicas that are launched, but not started yet
        self._process: subprocess.Popen[bytes] | None = None
        self._told: dict[tuple[int, str], int] = {}
        self._code: int | None = None  # exit code of the process, once it has ended
        self._changed = threading.Condition()

    def launch(self, number: int, connection: socket.socket) -> None:
        self._connections[number] = connection.dup()
        if len(self._connections) == self._size:
            try:
                self._start()
            finally:
                self._forget_connections()

    def end(self, number: int, *, at_once: bool) -> str:
        self._forget_connections()
        if self._process is None:
            return "was not started"
        with self._changed:
            if not self._changed.wait_for(lambda: self._ended(number), 0 if at_once else _ENDING_TIME):
                self._kill(number)
                self._changed.wait_for(lambda: self._ended(number))
            code = self._told.get((number, "code"), self._code)
            if all(self._ended(number) for number in range(self._size)):  # the parent of the children ends too
                self._changed.wait_for(lambda: self._code is not None, _ENDING_TIME)
        assert code is not None
        return f"was ended by {_name(-code)}" if code < 0 else f"ended with exit code {code}"

    def pid(self, number: int) -> int:
        if self._process is None or self._ended(number):
            return -1
        return self._process.pid if self._size == 1 else self._told.get((number, "pid"), -1)

    def _start(self) -> None:
        numbers = [self._connections[number].fileno() for number in range(self._size)]
        reading, writing = os.pipe()
        try:
            self._watch_in_background(os.fdopen(reading))
            self._process = subprocess.Popen(  # noqa: S603 it runs this program
                [*self._command, ",".join(map(str, [writing, *numbers]))],
                pass_fds=[writing, *numbers],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in a terminal must reach only the server
            )
        finally:
            os.close(writing)  # if the process was not started, this ends the watch

    def _watch_in_background(self, lines: TextIO) -> None:
        try:
            threading.Thread(target=self._watch, args=(lines,), name="replicas", daemon=True).start()
        except RuntimeError:  # no thread can be started
            lines.close()
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None

    def _watch(self, lines: TextIO) -> None:
        """Read reports until the process has ended."""
        try:
            with lines:
                for line in lines:
                    number, what, value = line.split()
                    with self._changed:
                        self._told[int(number), what] = int(value)
                        self._changed.notify_all()
        finally:
            if self._process:
                code = self._process.wait()
                with self._changed:
                    self._code = code
                    self._changed.notify_all()

    def _ended(self, number: int) -> bool:
        return self._code is not None or (number, "code") in self._told

    def _kill(self, number: int) -> None:
        assert self._process
        if pid := self._told.get((number, "pid")):
            with contextlib.suppress(ProcessLookupError):  # the child has ended, and its report is on the way
                os.kill(pid, signal.SIGKILL)
        else:
            self._process.kill()

    def _forget_connections(self) -> None:
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return f"signal {number}"
