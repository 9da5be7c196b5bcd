"""A process as the host of a replica."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Sequence

# How long a process gets to end the step it is in [seconds].
_ENDING_TIME = 5.0


class ProcessHost:
    """Runs a replica in a process of its own; see `Host`.

    Args:
        command: what to run, with the number of the connection's file descriptor after it. (-P: nothing is imported
            from the working directory.)
    """

    def __init__(self, command: Sequence[str] = (sys.executable, "-P", "-m", "translane_server.replicas")) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the process that was launched; there is none before, and -1 says so."""
        return -1 if self._process is None else self._process.pid

    def launch(self, connection: socket.socket) -> None:
        """See `Host.launch`."""
        number = connection.fileno()
        self._process = subprocess.Popen(  # noqa: S603 what it runs is this program
            [*self._command, str(number)],
            pass_fds=[number],
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a terminal's Ctrl-C is the server's
        )

    def end(self, *, at_once: bool) -> str:
        """See `Host.end`."""
        assert self._process
        try:
            code = self._process.wait(0 if at_once else _ENDING_TIME)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return f"was ended by {_name(-code)}" if code < 0 else f"ended with exit code {code}"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have none
        return f"signal {number}"
