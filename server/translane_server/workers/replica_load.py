"""The load of a replica, as the dispatcher computes it without asking the replica."""

from __future__ import annotations

from translane_server.engine.sequence import Task
from translane_server.workers.interface import Replica
from translane_server.workers.submission import Accepted

# The work that may wait in a replica, for each of its rows: expected tokens. What waits there goes before a caller who
# comes later. So long sentences of many rows wait in the queue, where callers have their turns, and few of them here.
_WAITING_TOKENS = 64


class ReplicaLoad:
    """The sentences of a replica. Sentences decode in order, as soon as their rows are free.

    Args:
        replica: the replica.

    Attributes:
        replica: the replica.
        is_up: whether the replica takes sentences.
        is_given_up: whether the replica is lost, and it seems that nothing starts in its place.
        accepted: number of a task -> the sentence.
        rows: maximum number of rows that all its sentences take.
        active_rows: maximum number of rows that its decoding sentences take.
    """

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.is_up = False
        self.is_given_up = False
        self.accepted: dict[int, Accepted] = {}
        self.rows = 0
        self.active_rows = 0
        self._capacity = replica.rows
        self._waiting: dict[int, Task] = {}
        self._waiting_cost = 0

    @property
    def waiting(self) -> int:
        """Number of sentences that wait for rows."""
        return len(self._waiting)

    def has_room_for(self, task: Task) -> bool:
        """Whether to send a sentence to the replica.

        The sentences of a replica may take twice the rows that it has. The waiting sentences are encoded together,
        before rows are free, and then fill free rows at once. Sentences of much work do not wait here in numbers.
        """
        if self.rows + task.rows > 2 * self._capacity:
            return False
        return not self._waiting or self._waiting_cost + task.cost <= _WAITING_TOKENS * self._capacity

    def send(self, accepted: Accepted) -> None:
        """Send a sentence to the replica."""
        task = accepted.task
        rows = task.rows
        self.accepted[task.number] = accepted
        self.rows += rows
        if self._waiting or self.active_rows + rows > self._capacity:
            self._waiting[task.number] = task
            self._waiting_cost += task.cost
        else:
            self.active_rows += rows
        self.replica.submit(task)

    def remove(self, number: int) -> Accepted:
        """Remove and return a sentence that no longer needs its rows."""
        accepted = self.accepted.pop(number)
        rows = accepted.task.rows
        self.rows -= rows
        if waiting := self._waiting.pop(number, None):
            self._waiting_cost -= waiting.cost
        else:
            self.active_rows -= rows
        while self._waiting:
            first = next(iter(self._waiting.values()))
            if self.active_rows + first.rows > self._capacity:
                break
            del self._waiting[first.number]
            self._waiting_cost -= first.cost
            self.active_rows += first.rows
        return accepted

    def clear(self) -> list[Accepted]:
        """Remove and return all sentences, in the order in which they were sent."""
        accepted = list(self.accepted.values())
        self.accepted, self._waiting = {}, {}
        self.rows = self.active_rows = self._waiting_cost = 0
        return accepted
