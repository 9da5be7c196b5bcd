"""Four servers behind a real Envoy under load: one is killed, one hangs, one drains, and a fifth joins.

The servers share a name, as the pods of a headless service in Kubernetes do, and Envoy asks a name server for their
addresses. Envoy's files are those of deploy/envoy, but for the address of the name server and the limits of rates.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from helpers.envoy import NO_LIMIT, running_envoy
from helpers.load_on_envoy import Answers, Load, Outcome
from helpers.name_server import NameServer
from helpers.ports import free_port
from helpers.reliability.server_process import ServerProcess

CALLS = 60  # after each event

_SHARED = 150  # calls whose shares of the servers are measured

_NAME = "translane.test"
_ADDRESSES = [f"127.0.0.{number}" for number in range(11, 16)]
_FLAGS = ("--threads=1", "--replicas=1", "--max-batch-size=8")  # each server has the share of one core
_TRANSLATED = 'grpc_server_handled_total{grpc_code="OK",grpc_method="Translate'
_RESOLVER = "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig"


@dataclass(frozen=True)
class Run:
    """What the events led to."""

    outcomes: Sequence[Outcome]
    shares: Sequence[float]
    """The parts of the calls that the four servers had before the first event."""
    silent_connections: int
    """Connections that Envoy gave up because a ping had no answer."""


def run(folder: Path) -> Run:
    """Have all events happen one after the other.

    Raises:
        RuntimeError: a server or Envoy does not start, or calls do not end.
    """
    with ExitStack() as stack:
        names = stack.enter_context(NameServer(*_ADDRESSES[:4]))
        fleet = _Fleet(folder, stack)
        servers = [fleet.start(address) for address in _ADDRESSES[:4]]
        killed, hanging, draining, _ = servers
        for server in servers:
            server.wait_until_it_serves()
        envoy = stack.enter_context(
            running_envoy(folder / "envoy", [f"{_NAME}:{fleet.port}"], changes=NO_LIMIT | _asking(names))
        )
        answers = Answers.of(servers[0].address)
        before = [_translated(server) for server in servers]
        load = stack.enter_context(Load(envoy, answers))

        def healthy(count: int) -> bool:
            return envoy.stats("cluster.translane.")["membership_healthy"] == count

        def kill() -> None:
            killed.process.kill()
            killed.process.wait()

        def drain() -> None:
            if (code := draining.terminate(60)) != 0:
                raise RuntimeError(f"the server that drains ended with exit code {code}")

        def join() -> None:
            joining.append(fleet.start(_ADDRESSES[4]))
            joining[0].wait_until_it_serves()
            names.addresses.append(_ADDRESSES[4])

        joining: list[ServerProcess] = []
        outcomes = [load.around("no fault", lambda: None, calls=_SHARED, until=lambda: healthy(4))]
        counts = [_translated(server) - then for server, then in zip(servers, before, strict=True)]
        outcomes += [
            load.around("one is killed", kill, calls=CALLS, until=lambda: healthy(3)),
            load.around(
                "one hangs", lambda: hanging.process.send_signal(signal.SIGSTOP), calls=CALLS, until=lambda: healthy(2)
            ),
            load.around(
                "it goes on",
                lambda: hanging.process.send_signal(signal.SIGCONT),
                calls=CALLS,
                until=_gets_calls(lambda: hanging),
            ),
            load.around("one drains", drain, calls=CALLS, until=lambda: healthy(2)),
            load.around("a fifth joins", join, calls=CALLS, until=_gets_calls(lambda: joining[0])),
        ]
        silent = envoy.stats("cluster.translane.")["http2.keepalive_timeout"]
        return Run(outcomes, [count / sum(counts) for count in counts], silent)


class _Fleet:
    """Servers on one port of several addresses; the stack stops them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self.port = free_port()

    def start(self, address: str) -> ServerProcess:
        log = self._folder / f"log-{address}"
        server = ServerProcess(log, [f"--port={self.port}", *_FLAGS], host=address)
        self._stack.callback(server.stop)
        return server


def _asking(names: NameServer) -> dict[str, str]:
    """The change of envoy.yaml that has Envoy ask this name server."""
    host, port = names.address.split(":")
    resolver = (
        "typed_dns_resolver_config: {name: envoy.network.dns_resolver.cares, typed_config: {"
        f'"@type": {_RESOLVER}, resolvers: [{{socket_address: {{address: {host}, port_value: {port}}}}}],'
        " dns_resolver_options: {no_default_search_domain: true}}}"
    )
    return {"type: STRICT_DNS  #": f"type: STRICT_DNS\n      {resolver}  #"}


def _gets_calls(server: Callable[[], ServerProcess]) -> Callable[[], bool]:
    """Whether the server has answered a call since it was asked about for the first time."""
    seen: list[float] = []

    def answers() -> bool:
        seen.append(_translated(server()))
        return seen[-1] > seen[0]

    return answers


def _translated(server: ServerProcess) -> float:
    return sum(value for name, value in server.metrics().items() if name.startswith(_TRANSLATED))
