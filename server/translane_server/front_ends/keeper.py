"""One front end as its parent sees it, over all its lives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from grpc_health.v1 import health_pb2

from translane_server.dispatch.process_connection import Host
from translane_server.dispatch.supervisor import ProcessSupervisor
from translane_server.front_ends.front_end_connection import FrontEndConnection
from translane_server.front_ends.messages import Change, Collect, FrontEndSetup, Health, Stopped

_SERVING = health_pb2.HealthCheckResponse.SERVING


class Keeper:
    """Keeps one front end running. All methods are called on the event loop.

    Args:
        setup: the setup of the front end.
        host: runs the front end.
        changed: called when `health` or `is_given_up` has changed.
        count_loss: called with the number of the front end when it is lost.

    Attributes:
        number: number of the front end.
        health: states of grpc.health.v1, by the names of services; empty while the front end does not serve.
        is_given_up: whether the front end was lost too often, and is not started again.
        drained: whether all accepted translations were finished when the front end ended, after `let_end`.
    """

    def __init__(
        self,
        setup: FrontEndSetup,
        host: Host,
        changed: Callable[[], None],
        count_loss: Callable[[int], None],
    ) -> None:
        self.number = setup.number
        self.health: Mapping[str, int] = {}
        self.is_given_up = False
        self.drained: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._setup = setup
        self._host = host
        self._ends = False
        self._changed = changed
        self._count_loss = count_loss
        self._process: FrontEndConnection
        self._supervisor = ProcessSupervisor(self._make, patience=setup.settings.replica_timeout)

    @property
    def translates(self) -> bool:
        """Whether the front end has a model that translates, and has answered in the last seconds."""
        return self.health.get("") == _SERVING and self._supervisor.is_responsive

    async def start(self) -> None:
        """Start the front end, and wait until it serves.

        Raises:
            StartupError: it cannot start.
        """
        await self._supervisor.start(self)

    def send(self, message: object) -> None:
        """Send an order. A front end that does not serve misses it."""
        self._process.send(message)

    async def answer(self, content: Collect | Change) -> Any:
        """Ask a question, and wait for its answer.

        Raises:
            FrontEndGoneError: the front end does not serve, or ends before it answers.
        """
        return await self._process.answer(content)

    def let_end(self) -> None:
        """Do not start the front end again when it ends."""
        self._ends = True
        self._supervisor.let_end()

    async def stop(self) -> None:
        """End the front end at once."""
        await self._supervisor.stop()

    def _make(self) -> FrontEndConnection:
        self._process = FrontEndConnection(self._setup, self._host, self)
        return self._process

    # For the connection

    def told_health(self, health: Health) -> None:
        """The front end has told whether it serves."""
        self.health = health.states
        self._changed()

    def told_end(self, stopped: Stopped) -> None:
        """The front end has ended."""
        if self._ends and not self.drained.done():
            self.drained.set_result(stopped.drained)

    # For the supervisor

    def lost(self, supervisor: object) -> None:  # noqa: ARG002 there is one
        """The front end has ended, though nobody asked it to."""
        self.health = {}
        self._count_loss(self.number)
        self._changed()

    def returned(self, supervisor: object) -> None:
        """The front end serves again. It has told its health."""

    def given_up(self, supervisor: object) -> None:  # noqa: ARG002
        """The front end is not started any more."""
        self.is_given_up = True
        self._changed()
