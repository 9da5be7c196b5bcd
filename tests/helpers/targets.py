"""The ways to serve `translane.v1` that the tests of `integration/targets` call: to a client, each is one service."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.reliability.server_process import BUNDLE, running_server

if TYPE_CHECKING:
    from helpers.ray_cluster.serve import RayServe

# One engine is as small as can be, so that a caller can fill it. Limits that callers meet have their defaults.
_ENGINE = ("--threads=1", "--replicas=1", "--max-batch-size=16")


@dataclass(frozen=True)
class Target:
    """A running service.

    Attributes:
        address: what a client is given.
        engines: how many engines take the calls, each with a queue and rows of its own.
    """

    address: str
    engines: int


@contextmanager
def _one_server(folder: Path, flags: Sequence[str]) -> Iterator[Target]:
    with running_server(folder / "log", *_ENGINE, *flags) as server:
        yield Target(server.address, engines=1)


@contextmanager
def _two_servers(folder: Path, flags: Sequence[str]) -> Iterator[Target]:
    with ExitStack() as stack:
        servers = [stack.enter_context(running_server(folder / f"log-{n}", *_ENGINE, *flags)) for n in range(2)]
        yield Target(",".join(server.address for server in servers), engines=2)


def _ray_serve(cluster: RayServe, flags: Sequence[str]) -> Target:
    cluster.deploy([str(BUNDLE), *_ENGINE, "--metrics-port=0", "--serve-replicas=2", *flags])
    cluster.settled(2)
    return Target(cluster.address, engines=2)


_SERVERS: dict[str, Callable[[Path, Sequence[str]], AbstractContextManager[Target]]] = {
    "server": _one_server,
    "two servers": _two_servers,
}
# The parameters of a fixture that has `running_target`. The last one runs until all tests have ended, so Ray is first.
TARGETS = (
    pytest.param("Ray Serve", marks=pytest.mark.xdist_group("ray")),
    *(pytest.param(name, marks=pytest.mark.xdist_group("targets")) for name in _SERVERS),
)


def running_target(request: pytest.FixtureRequest, folder: Path, *flags: str) -> AbstractContextManager[Target]:
    """Start a service with the bundled model, and stop it at the end.

    Args:
        request: of a fixture with the parameters TARGETS.
        folder: for logs; is there.
        flags: of `translane serve`, which every way understands.
    """
    if start := _SERVERS.get(request.param):
        return start(folder, flags)
    return nullcontext(_ray_serve(request.getfixturevalue("ray_cluster"), flags))
