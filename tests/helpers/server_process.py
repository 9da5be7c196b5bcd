"""`translane serve` as a process, with a fake model."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil

TESTS = Path(__file__).parents[1]


class ServerProcess:
    """A running server; `lines` grows with its log."""

    def __init__(self, *argv: str, **environ: str) -> None:
        command = [sys.executable, str(TESTS / "fakes" / "command.py"), "x", "--port=0", "--metrics-port=0"]
        path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        environ = {**os.environ, "PYTHONPATH": path, "GRPC_VERBOSITY": "NONE", **environ}
        self.process: Any = subprocess.Popen([*command, *argv], env=environ, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Return the first line that has `pattern`."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            for line in list(self.lines):
                if found := re.search(pattern, line):
                    return found
            time.sleep(0.01)
        raise AssertionError(f"no {pattern!r} in {self.lines}")

    def wait_for_a_request(self) -> None:
        """Until a sentence decodes."""
        address = self.wait_for("metrics on (http://.*)")[1]
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with urlopen(address) as response:
                if re.search(rb'translane_rows{.*state="active"} [1-9]', response.read()):
                    return
            time.sleep(0.01)
        raise AssertionError("no request came in")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def exit_code(self) -> int:
        code: int = self.process.wait(20)
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stderr.close()


def assert_gone(*processes: psutil.Process) -> None:
    """Whoever inherits what has lost its parent may leave it a zombie."""
    deadline = time.monotonic() + 10
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            while process.status() != psutil.STATUS_ZOMBIE:
                assert time.monotonic() < deadline, process
                time.sleep(0.01)
