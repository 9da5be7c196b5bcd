"""The load of a replica, as the dispatcher computes it without asking the replica."""

from __future__ import annotations

from translane_server.replica.interface import Replica
from translane_server.sentence import Task


class ReplicaLoad:
    """The tasks of a replica. Tasks decode in order, as soon as their rows are free.

    Args:
        replica: the replica.

    Attributes:
        replica: the replica.
        rows: maximum number of rows that all its tasks take.
        active_rows: maximum number of rows that its decoding tasks take.
    """

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.rows = 0
        self.active_rows = 0
        self._capacity = replica.rows
        self._waiting: dict[int, int] = {}  # number of a task -> its rows

    @property
    def waiting(self) -> int:
        """Number of tasks that wait for rows."""
        return len(self._waiting)

    def has_room_for(self, rows: int) -> bool:
        """Whether to send a task of this number of rows to the replica.

        The tasks of a replica may take twice the rows that it has. The waiting tasks are encoded together, before rows
        are free, and then fill free rows at once.
        """
        return self.rows + rows <= 2 * self._capacity

    def add(self, task: Task) -> None:
        """Add a task that is sent to the replica."""
        rows = task.rows
        self.rows += rows
        if self._waiting or self.active_rows + rows > self._capacity:
            self._waiting[task.number] = rows
        else:
            self.active_rows += rows

    def remove(self, task: Task) -> None:
        """Remove a task that no longer needs its rows."""
        rows = task.rows
        self.rows -= rows
        if self._waiting.pop(task.number, None) is None:
            self.active_rows -= rows
        while self._waiting:
            first = next(iter(self._waiting))
            if self.active_rows + self._waiting[first] > self._capacity:
                return
            self.active_rows += self._waiting.pop(first)
