"""The ways to serve `translane.v1` that the tests of `integration/targets` call: to a client, each is one service."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.reliability.server_process import running_server

# One engine is as small as can be, so that a caller can fill it. Limits that callers meet have their defaults.
_ENGINE = ("--threads=1", "--replicas=1", "--rows=16")


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


@contextmanager
def _ray_serve(folder: Path, flags: Sequence[str]) -> Iterator[Target]:
    pytest.importorskip("ray.serve", reason="the extra ray is not installed")
    ray_serve = pytest.importorskip("helpers.ray_cluster.serve")
    with ray_serve.running_ray_serve(folder, replicas=2, flags=(*_ENGINE, *flags)) as address:
        yield Target(address, engines=2)


# The last one runs until all tests have ended, beside the others. So Ray, which has some twenty processes, is first.
_TARGETS: dict[str, Callable[[Path, Sequence[str]], AbstractContextManager[Target]]] = {
    "Ray Serve": _ray_serve,
    "server": _one_server,
    "two servers": _two_servers,
}
NAMES = tuple(_TARGETS)


def running_target(name: str, folder: Path, *flags: str) -> AbstractContextManager[Target]:
    """Start a service with the bundled model, and stop it at the end.

    Args:
        name: of the way to serve, one of NAMES.
        folder: for logs; is there.
        flags: of `translane serve`, which every way understands.
    """
    return _TARGETS[name](folder, flags)
