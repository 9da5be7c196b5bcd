"""The interface between the dispatcher and the replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from translane_server.engine.sequence import CertainTokens, Measurements, SentenceResult, Task


class Report(NamedTuple):
    """A report of a replica. Tasks are identified by their numbers.

    Attributes:
        ended: tasks that are decoded, with their results.
        dropped: cancelled tasks, whose rows are free.
        certain: streamed tasks with their new certain tokens, in order.
        measurements: measurements since the last report.
        failed: tasks whose step has failed. Their rows are free.
    """

    ended: Sequence[tuple[int, SentenceResult]]
    dropped: Sequence[int]
    certain: Sequence[tuple[int, CertainTokens]]
    measurements: Measurements
    failed: Sequence[int] = ()


class ReplicaListener(Protocol):
    """Receives the reports of replicas. All methods are called on the event loop."""

    def reported(self, replica: Replica, report: Report) -> None:
        """A replica has sent a report."""

    def lost(self, replica: Replica) -> None:
        """A replica has ended, though it was not stopped. Its tasks are lost; it takes no tasks until it returns."""

    def returned(self, replica: Replica) -> None:
        """A lost replica has been replaced, and takes tasks again."""

    def given_up(self, replica: Replica) -> bool:
        """A lost replica was not replaced in a long time. Returns whether to go on trying."""


class Replica(Protocol):
    """Decodes tasks. All methods are called on the event loop."""

    @property
    def rows(self) -> int:
        """Maximum number of hypotheses that decode at once."""

    @property
    def is_responsive(self) -> bool:
        """Whether the replica has given a sign of life in the last seconds."""

    async def start(self, listener: ReplicaListener) -> None:
        """Start the replica, and wait until it is ready to decode.

        Args:
            listener: receives the replica's reports.

        Raises:
            StartupError: the replica cannot start.
        """

    def submit(self, task: Task) -> None:
        """Decode a task. A report will contain the task when it has ended."""

    def cancel(self, number: int) -> None:
        """Drop the task of this number, unless it has ended. A report contains the task in either case."""

    async def stop(self) -> None:
        """End the replica at once. Tasks that are decoding are lost."""
