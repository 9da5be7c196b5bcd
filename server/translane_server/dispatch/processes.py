"""Processes as the hosts of replicas."""

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

# How long a process gets to end the step it is in [seconds].
_ENDING_TIME = 5.0

# Runs replicas; what they serve is told after it. (-P: nothing is imported from the working directory.)
_COMMAND = (sys.executable, "-P", "-m", "translane_server.replica")


class ProcessHost:
    """Runs a replica in a process of its own; see `Host`."""

    def __init__(self, group: _Group, number: int) -> None:
        self._group = group
        self._number = number

    @property
    def pid(self) -> int:
        """Of the process while it is there; else -1."""
        return self._group.pid(self._number)

    def launch(self, connection: socket.socket) -> None:
        """See `Host.launch`. The processes of a group start with the last of them."""
        self._group.launch(self._number, connection)

    def end(self, *, at_once: bool) -> str:
        """See `Host.end`."""
        return self._group.end(self._number, at_once=at_once)


def process_hosts(count: int, threads: int, command: Sequence[str] = _COMMAND) -> list[ProcessHost]:
    """Hosts for so many replicas of one model, of so many threads each.

    Those of one thread fork from one process, which loads the model: see `forked`. On a GPU there is one replica.
    """
    sizes = [count] if threads == 1 else [1] * count
    return [ProcessHost(group, number) for size in sizes for group in [_Group(size, command)] for number in range(size)]


class _Group:
    """A process that is started, and those that fork from it: one for each of `size` replicas, where these are several.

    It tells of them over a pipe, because they are its children and nobody else's: see `forked.serve_forked`. Of what it
    tells nothing, it is the replica itself, or has ended before there was one.
    """

    def __init__(self, size: int, command: Sequence[str]) -> None:
        self._size = size
        self._command = command
        self._connections: dict[int, socket.socket] = {}  # of those that are to start with the others
        self._process: subprocess.Popen[bytes] | None = None
        self._told: dict[tuple[int, str], int] = {}
        self._code: int | None = None  # of the process itself, once it has ended
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
            if all(self._ended(number) for number in range(self._size)):  # it ends, too, which they have forked from
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
            self._process = subprocess.Popen(  # noqa: S603 what it runs is this program
                [*self._command, ",".join(map(str, [writing, *numbers]))],
                pass_fds=[writing, *numbers],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # a terminal's Ctrl-C is the server's
            )
        finally:
            os.close(writing)  # where nothing was started, that ends the watch

    def _watch_in_background(self, lines: TextIO) -> None:
        try:
            threading.Thread(target=self._watch, args=(lines,), name="replicas", daemon=True).start()
        except RuntimeError:  # there may be no more threads
            lines.close()
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None

    def _watch(self, lines: TextIO) -> None:
        """Take what is told until the process has ended."""
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
            with contextlib.suppress(ProcessLookupError):  # its end is about to be told
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
    except ValueError:  # real-time signals have none
        return f"signal {number}"
