"""The server's end of the socket to a replica."""

from __future__ import annotations

from typing import Any

from translane_server.dispatch.process_connection import Host, ProcessConnection
from translane_server.replica.messages import Orders, pack_orders, unpack_report
from translane_server.replica.setup import ReplicaSetup
from translane_server.sentence import Task


class ReplicaConnection(ProcessConnection):
    """A replica at the other end of a socket. Implements `SupervisedReplica`.

    All orders of one turn of the event loop are sent in one message.

    Args:
        setup: the setup of the replica.
        host: runs the replica.
    """

    def __init__(self, setup: ReplicaSetup, host: Host) -> None:
        super().__init__(f"replica {setup.number}", setup, host)
        self.rows = setup.rows
        self._tasks: list[Task] = []  # tasks that are not sent yet
        self._cancelled: list[int] = []  # numbers of tasks, not sent yet
        self._asks = False
        self._sends_soon = False

    @property
    def is_responsive(self) -> bool:
        return True  # a supervisor knows better

    def submit(self, task: Task) -> None:
        self._tasks.append(task)
        self._send_soon()

    def cancel(self, number: int) -> None:
        self._cancelled.append(number)
        self._send_soon()

    def ask(self) -> None:
        """Ask for a report, even an empty one, unless the replica is still loading."""
        if self._serves:
            self._asks = True
            self._send_soon()

    def _take(self, message: Any) -> None:
        self._listener.reported(self, unpack_report(message))

    def _send_soon(self) -> None:
        if not self._sends_soon:
            self._sends_soon = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._sends_soon = False
        if self._tasks or self._cancelled or self._asks:
            orders = Orders(self._tasks, self._cancelled, self._asks)
            self._tasks, self._cancelled, self._asks = [], [], False
            self._write(pack_orders(orders))

    def buffer_updated(self, nbytes: int) -> None:
        scheduled, self._sends_soon = self._sends_soon, True
        self._received(self._buffer[:nbytes])
        if not scheduled:  # new orders after a report are sent at once, without a turn of the event loop
            self._flush()
