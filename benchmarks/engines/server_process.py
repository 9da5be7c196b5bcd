"""Servers in processes of their own, and `translane bench` against them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import cpu_seconds, family
from benchmarks.places import ROOT
from helpers.ports import free_port
from translane import Client, RetryPolicy, TranslaneError

START_SECONDS = 120.0


class BenchError(Exception):
    """A run of `translane bench` without a measurement."""


class ServerProcess:
    """A server on a free port of this machine, which is added to its command; a `with` statement ends it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [sys.executable, *command, "--port", str(port)],
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def __enter__(self) -> ServerProcess:
        self._wait_until_it_answers()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_seconds(self) -> float:
        """Processor time that the server and its descendants have used so far."""
        return cpu_seconds(family(self.pid))

    def _wait_until_it_answers(self) -> None:
        end = time.monotonic() + START_SECONDS
        with Client(self.address, retry=RetryPolicy(attempts=1)) as client:
            while True:
                try:
                    client.translate("a", max_length=2, timeout=START_SECONDS)
                    return
                except TranslaneError as error:
                    if self._process.poll() is not None or time.monotonic() > end:
                        self._log.seek(0)
                        said = self._log.read()[-2000:]
                        self.__exit__()
                        raise RuntimeError(f"the server does not answer: {error}; it said:\n{said}") from None
                time.sleep(0.2)


def translane(bundle: Path) -> ServerProcess:
    """Translane as it is shipped."""
    return ServerProcess(["-m", "translane", "serve", str(bundle.resolve()), "--metrics-port", "0"])


def ctranslate2(model: Path, bundle: Path, flags: Sequence[str], environment: Mapping[str, str]) -> ServerProcess:
    """CTranslate2 behind the same protocol; see `ctranslate2_server`."""
    program = "benchmarks.engines.ctranslate2_server"
    return ServerProcess(
        ["-m", program, "--model", str(model.resolve()), "--bundle", str(bundle.resolve()), *flags], environment
    )


def bench(address: str, *flags: str) -> dict[str, Any]:
    """What `translane bench` measures, run as a user would run it: in a process of its own.

    Raises:
        BenchError: there is no measurement.
    """
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [sys.executable, "-m", "translane", "bench", "--server", address, "--json", file.name, *flags]
        done = subprocess.run(command, capture_output=True, text=True)
        report = Path(file.name).read_text(encoding="utf-8")
        if not report:
            raise BenchError(f"translane bench failed: {done.stderr}")
        measured: dict[str, Any] = json.loads(report)
        return measured
