"""Several servers, each in a process of its own, that end and come back at the same address."""

from __future__ import annotations

import contextlib
import random
import signal
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from helpers.server_process import ServerProcess

# Below the ports that the kernel gives to connections. So nobody takes a server's port while the server is away.
_PORTS = range(20_000, 32_000)
_TRANSLATIONS = ("grpc_server_handled_total{", 'grpc_method="Translate"')


class SeveralServers:
    """Servers with the same flags.

    Args:
        folder: for their logs; is there.
        count: how many servers there are.
        flags: of each server.

    Attributes:
        faults: how often servers were killed, stopped and drained.
    """

    def __init__(self, folder: Path, count: int, flags: Sequence[str]) -> None:
        self._folder = folder
        self._flags = flags
        self._started = 0
        self._servers = [self._start(_lasting_port()) for _ in range(count)]
        self.faults: Counter[str] = Counter()

    @property
    def address(self) -> str:
        """All addresses, as a client takes them."""
        return ",".join(server.address for server in self._servers)

    def wait_until_they_serve(self) -> None:
        """Wait for all servers. RuntimeError: a server does not serve in time."""
        for server in self._servers:
            server.wait_until_it_serves()

    def kill(self, number: int) -> None:
        """Kill a server, as the kernel does when memory is out."""
        self._servers[number].process.kill()
        self._servers[number].process.wait()
        self.faults["killed"] += 1

    def hang(self, number: int) -> None:
        """Stop a server, so that it hangs with its connections open."""
        self._servers[number].process.send_signal(signal.SIGSTOP)
        self.faults["stopped"] += 1

    def resume(self, number: int) -> None:
        """Let a stopped server go on."""
        self._servers[number].process.send_signal(signal.SIGCONT)

    def drain(self, number: int) -> int | None:
        """End a server as an orchestrator does. Returns its exit code; None if it does not end."""
        self.faults["drained"] += 1
        return self._servers[number].terminate(60)

    def restart(self, number: int) -> None:
        """Start a server where one has ended, and wait until it serves. RuntimeError: it does not serve in time."""
        ended = self._servers[number]
        ended.stop()
        self._servers[number] = self._start(ended.port)
        self._servers[number].wait_until_it_serves()

    def translations_of(self, number: int) -> float:
        """How many calls of `Translate` a server has answered since it started."""
        metrics = self._servers[number].metrics().items()
        return sum(value for name, value in metrics if all(part in name for part in _TRANSLATIONS))

    def stop(self) -> None:
        """End all servers."""
        for server in self._servers:
            server.stop()

    def _start(self, port: int) -> ServerProcess:
        self._started += 1
        return ServerProcess(self._folder / f"server-{self._started}.log", [*self._flags, f"--port={port}"])


@contextlib.contextmanager
def several_servers(folder: Path, count: int, *flags: str) -> Iterator[SeveralServers]:
    """Start servers, wait until all serve, and stop them at the end. The arguments are those of `SeveralServers`."""
    servers = SeveralServers(folder, count, flags)
    try:
        servers.wait_until_they_serve()
        yield servers
    finally:
        servers.stop()


def _lasting_port() -> int:
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
