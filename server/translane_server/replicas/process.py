"""A process as the host of a replica."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

# How long a process gets to end the step it is in [seconds].
_ENDING_TIME = 5.0


class ProcessHost:
    """Runs a replica in a process of its own; see `Host`."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self, connection: socket.socket) -> None:
        """See `Host.launch`."""
        number = connection.fileno()
        command = [sys.executable, "-m", "translane_server.replicas", str(number)]
        self._process = subprocess.Popen(command, pass_fds=[number], stdin=subprocess.DEVNULL)  # noqa: S603 constant

    def end(self, *, at_once: bool) -> str:
        """See `Host.end`."""
        assert self._process
        try:
            code = self._process.wait(0 if at_once else _ENDING_TIME)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
