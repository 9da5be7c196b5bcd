"""A server in a process of its own, as a user would start it, to be measured."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import grpc

from translane_plan.errors import PlanError
from translane_plan.measuring.processes import descendants

# The child's program. Whoever ends this program by SIGKILL ends the server, too: prctl(2), PR_SET_PDEATHSIG.
_PROGRAM = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv.pop(1)):
    sys.exit("its parent has ended")
from translane_server.__main__ import main
sys.exit(main())
"""

METHOD = "/translane.v1.TranslationService/Translate"
_START_SECONDS = 100.0
_END_SECONDS = 20.0
_PAUSE = 0.1
_STILL_STARTING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class MeasuredServer:
    """A server on a free port of this machine; a `with` statement ends it, or the end of the thread that made it.

    Args:
        model: folder of the bundle.
        flags: more flags of the server.
        environ: the environment of this program. Settings of Translane in it do not count.
        request: a serialised request; the server has started when it is answered.

    Attributes:
        address: where it listens.
        pid: its process, which takes requests.
        start: seconds until the first translation.
    """

    def __init__(self, model: str, flags: Sequence[str], environ: Mapping[str, str], request: bytes) -> None:
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self._request = request
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 closed with the process
        command = [sys.executable, "-P", "-c", _PROGRAM, str(os.getpid()), "--model", model, "--port", str(port)]
        fixed = ["--metrics-port", "0", "--no-decoding-defaults", "--caller-share", "1", "--log-level", "warning"]
        kept = {name: value for name, value in environ.items() if not name.startswith("TRANSLANE_")}
        self._begun = time.perf_counter()
        self._process = subprocess.Popen(  # noqa: S603 this package's server
            [*command, *fixed, *flags], env=kept, stdout=self._log, stderr=subprocess.STDOUT
        )
        self.pid = self._process.pid
        self.start = 0.0

    def __enter__(self) -> Self:
        try:
            self._wait_until_it_answers()
        except BaseException:
            self._end()
            raise
        self.start = time.perf_counter() - self._begun
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def replica_pids(self) -> list[int]:
        """The processes that decode, and those that they fork from."""
        return descendants(self.pid)

    def _wait_until_it_answers(self) -> None:
        with grpc.insecure_channel(self.address, [("grpc.enable_http_proxy", 0)]) as channel:
            translate = channel.unary_unary(METHOD, None, None)
            while True:
                try:
                    translate(self._request, timeout=5, wait_for_ready=True)
                    return
                except grpc.RpcError as error:
                    late = time.perf_counter() - self._begun > _START_SECONDS
                    if late or self._process.poll() is not None or error.code() not in _STILL_STARTING:
                        self._log.seek(0)
                        said = self._log.read().strip().splitlines()
                        reason = said[-1] if said else f"{error.code().name}: {error.details()}"
                        raise PlanError(f"the server to measure does not answer: {reason}") from None
                time.sleep(_PAUSE)  # a model loads meanwhile, perhaps on this core

    def _end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
