"""`translane serve` as a process, with a fake model."""

import contextlib
import os
import re
import signal
import time
from pathlib import Path

import psutil

from helpers.file_server import wait_until
from helpers.reliability import server_process

TESTS = Path(__file__).parents[1]
PATIENCE = 30.0  # [seconds]


class ServerProcess(server_process.ServerProcess):
    """A running server; its log is in a file."""

    def __init__(self, log: Path, *argv: str, **environ: str) -> None:
        path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        program = [str(TESTS / "fakes" / "command.py")]
        super().__init__(log, ["x", *argv], environment={"PYTHONPATH": path, **environ}, program=program)

    @property
    def lines(self) -> list[str]:
        return self.log.splitlines()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Return the first line that has `pattern`."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for line in self.lines:
                if found := re.search(pattern, line):
                    return found
            time.sleep(0.01)
        raise AssertionError(f"no {pattern!r} in {self.lines}")

    def wait_for_a_request(self) -> None:
        """Until a sentence decodes."""
        self.metrics_port = int(self.wait_for(r"metrics on http://\S+?:(\d+)")[1])
        wait_until(lambda: any(re.match("translane_rows{.*active", name) for name, n in self.metrics().items() if n))

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def exit_code(self) -> int:
        return self.process.wait(20)


def assert_gone(*processes: psutil.Process) -> None:
    """Whoever inherits what has lost its parent may leave it a zombie."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            wait_until(lambda process=process: process.status() == psutil.STATUS_ZOMBIE)  # type: ignore[misc]
