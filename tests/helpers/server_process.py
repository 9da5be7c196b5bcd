"""A server in a process of its own, on loopback and free ports, with the processes that it starts."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any
from urllib.request import urlopen

import grpc
import psutil
from grpc_health.v1 import health_pb2, health_pb2_grpc

from helpers.file_server import wait_until

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
BUNDLE = ROOT / "models" / "zh-en"

_REPLICA = "translane_server.workers"
_STARTING_TIME = 60.0  # [seconds]
_ENDING_TIME = 15.0  # [seconds]
_PATIENCE = 60.0  # for a line of the log, on a busy machine [seconds]

# No test may take the memory of the whole machine: the address space of a server's process and of each replica [KiB].
_ADDRESS_SPACE = 8 * 1024 * 1024


class ServerProcess:
    """A running `python -m translane serve`, or another program with the same flags.

    Args:
        log: the file for what the server prints.
        flags: of the command, beside the ports; models come first. Without any, the bundled model is served.
        limits: options of the shell's `ulimit`, such as {"n": 64} for 64 file descriptors.
        environment: variables that are set for the server.
        pipes_log: whether the server writes to a pipe, which another process reads into the file.
        program: the arguments of Python that run the server.
        host: the loopback address to listen on.
    """

    def __init__(
        self,
        log: Path,
        flags: Sequence[str] = (),
        limits: Mapping[str, int] | None = None,
        environment: Mapping[str, str] | None = None,
        *,
        pipes_log: bool = False,
        program: Sequence[str] = ("-m", "translane", "serve"),
        host: str = "127.0.0.1",
    ) -> None:
        self._log = log
        ulimits = {"v": _ADDRESS_SPACE} | dict(limits or {})
        prelude = "".join(f"ulimit -{option} {value} && " for option, value in ulimits.items())
        models_first = not next(iter(flags), "-").startswith("-")
        has_models = models_first or any(flag.startswith("--models") for flag in flags)
        model = [] if has_models else [str(BUNDLE)]
        command = [sys.executable, *program, *model, f"--host={host}"]
        command += ["--port=0", "--metrics-port=0", "--no-page", *flags]
        self.log_reader: subprocess.Popen[bytes] | None = None  # the process that reads the pipe, if there is one
        with log.open("wb") as file, contextlib.ExitStack() as pipe:
            printed: IO[bytes] = file
            if pipes_log:
                self.log_reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=file)
                assert self.log_reader.stdin
                printed = pipe.enter_context(self.log_reader.stdin)
            self.process = subprocess.Popen(
                ["sh", "-c", f'{prelude}exec "$@"', "sh", *command],
                cwd=ROOT,
                env={**os.environ, "GRPC_VERBOSITY": "NONE", **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
            )
        self.host = host
        self.port = self.metrics_port = 0

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def http_port(self) -> int:
        """The HTTP port; 0 if there is none."""
        return self._port_in_log("JSON on http://")

    @property
    def log(self) -> str:
        """What the server has printed so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def lines(self) -> list[str]:
        return self.log.splitlines()

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def wait_for(self, pattern: str, count: int = 1) -> re.Match[str]:
        """Wait until so many lines of the log have `pattern`, and return the last of them."""
        deadline = time.monotonic() + _PATIENCE
        while len(found := [match for line in self.lines if (match := re.search(pattern, line))]) < count:
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.lines}"
            time.sleep(0.01)
        return found[-1]

    def wait_for_a_request(self) -> None:
        """Wait until a sentence decodes."""
        self.metrics_port = self._port_in_log("metrics on http://")
        wait_until(lambda: any(re.match("translane_rows{.*active", name) for name, n in self.metrics().items() if n))

    def descendants(self) -> list[psutil.Process]:
        """All living processes that the server or its processes started."""
        try:
            found = psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return [process for process in found if _is_running(process)]

    def replicas(self) -> list[psutil.Process]:
        """The processes that decode: those with the replica's command and without children."""
        return [process for process in self._replica_processes() if not _children(process)]

    def forkers(self) -> list[psutil.Process]:
        """The processes that have loaded a model and wait for the replicas that they forked."""
        return [process for process in self._replica_processes() if _children(process)]

    def metrics(self) -> dict[str, float]:
        """The value of each series on the metrics port."""
        with urlopen(f"http://{self.host}:{self.metrics_port}/metrics", timeout=10) as response:
            lines = response.read().decode().splitlines()
        pairs = [line.rpartition(" ") for line in lines if line and not line.startswith("#")]
        return {name: float(value) for name, _, value in pairs}

    def wait_until_it_serves(self, seconds: float = _STARTING_TIME) -> None:
        """Wait for the ports in the log, and for SERVING. RuntimeError: the server does not serve within `seconds`."""
        deadline = time.monotonic() + seconds
        while not self.port or not self.metrics_port:
            self.port = self._port_in_log("listening on ")
            self.metrics_port = self._port_in_log("metrics on http://")
            self._check_start(deadline)
            time.sleep(0.02)
        with grpc.insecure_channel(self.address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            while True:
                self._check_start(deadline)
                with contextlib.suppress(grpc.RpcError):
                    answer = health.Check(health_pb2.HealthCheckRequest(), timeout=5, wait_for_ready=True)
                    if answer.status == health_pb2.HealthCheckResponse.SERVING:
                        return
                time.sleep(0.02)

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def exit_code(self) -> int:
        return self.process.wait(20)

    def terminate(self, seconds: float = _ENDING_TIME) -> int | None:
        """Send SIGTERM, and return the exit code; None if the server lives on after `seconds`."""
        self.process.terminate()
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> None:
        """End the server and all its processes, stopped ones too."""
        family = self.descendants()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
        if self.is_alive:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
        for process in {*family, *self.descendants()}:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if self.is_alive:
            self.process.kill()
        self.process.wait()
        if self.log_reader:
            self.log_reader.kill()
            self.log_reader.wait()

    def _replica_processes(self) -> list[psutil.Process]:
        return [process for process in self.descendants() if _REPLICA in _command(process)]

    def _port_in_log(self, before: str) -> int:
        found = re.search(rf"{re.escape(before)}\S+?:(\d+)", self.log)
        return int(found[1]) if found else 0

    def _check_start(self, deadline: float) -> None:
        if not self.is_alive or time.monotonic() > deadline:
            state = "is not ready" if self.is_alive else f"ended with exit code {self.process.returncode}"
            raise RuntimeError(f"the server {state}; it said:\n{self.log[-2000:]}")


@contextlib.contextmanager
def running_server(log: Path, *flags: str, **arguments: Any) -> Iterator[ServerProcess]:
    """Start a server, wait until it serves, and stop it at the end. The arguments are those of `ServerProcess`."""
    server = ServerProcess(log, flags, **arguments)
    try:
        server.wait_until_it_serves()
        yield server
    finally:
        server.stop()


def fake_model(**variables: str) -> dict[str, Any]:
    """The arguments of a server whose model is `fakes.command`'s, with these variables; its first flag is a folder."""
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"program": (str(TESTS / "fakes" / "command.py"),), "environment": {"PYTHONPATH": path, **variables}}


def assert_gone(*processes: psutil.Process) -> None:
    """Whoever inherits what has lost its parent may leave it a zombie."""
    for process in processes:
        wait_until(lambda process=process: not _is_running(process))  # type: ignore[misc]


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [child for child in process.children() if _is_running(child)]
    except psutil.NoSuchProcess:
        return []


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
