"""How busy a replica is, as far as the dispatcher can tell without asking it."""

from __future__ import annotations

from translane_server.replica.seam import Replica
from translane_server.sentence import Task


class ReplicaLoad:
    """What the tasks that were sent to a replica do there: they decode as soon as it has rows, in order.

    Args:
        replica: decodes them.

    Attributes:
        replica: decodes them.
        rows: that all its tasks may come to take.
        active_rows: those of them that the decoding tasks may.
    """

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.rows = 0
        self.active_rows = 0
        self._capacity = replica.rows
        self._waiting: dict[int, int] = {}  # rows by the number of the task

    @property
    def waiting(self) -> int:
        """How many of its tasks wait."""
        return len(self._waiting)

    def has_room_for(self, rows: int) -> bool:
        """Whether a task of so many rows is to be sent to it.

        As many as it has rows may wait there: they are encoded together, ahead of time, and rows become busy again as
        soon as they are free.
        """
        return self.rows + rows <= 2 * self._capacity

    def add(self, task: Task) -> None:
        """A task is sent to it."""
        rows = task.rows
        self.rows += rows
        if self._waiting or self.active_rows + rows > self._capacity:
            self._waiting[task.number] = rows
        else:
            self.active_rows += rows

    def remove(self, task: Task) -> None:
        """A task needs its rows no more."""
        rows = task.rows
        self.rows -= rows
        if self._waiting.pop(task.number, None) is None:
            self.active_rows -= rows
        while self._waiting:
            first = next(iter(self._waiting))
            if self.active_rows + self._waiting[first] > self._capacity:
                return
            self.active_rows += self._waiting.pop(first)
