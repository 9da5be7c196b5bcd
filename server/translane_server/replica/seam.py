"""The seam between the dispatcher and what decodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from translane_server.measurements import Measurements
from translane_server.sentence import CertainTokens, SentenceResult, Task


class Report(NamedTuple):
    """What a replica has to tell. Tasks are named by their numbers.

    Attributes:
        ended: tasks that are decoded, and their results.
        dropped: tasks that were given up, and take no more rows.
        certain: tokens that have become certain, of streamed tasks, in order.
        measurements: since the last report.
    """

    ended: Sequence[tuple[int, SentenceResult]]
    dropped: Sequence[int]
    certain: Sequence[tuple[int, CertainTokens]]
    measurements: Measurements


class ReplicaListener(Protocol):
    """Who is told what becomes of tasks, on the event loop."""

    def reported(self, replica: Replica, report: Report) -> None:
        """A replica has something to tell."""

    def lost(self, replica: Replica) -> None:
        """A replica has ended without being told to."""


class Replica(Protocol):
    """Decodes tasks, as many at once as it has rows for. All methods are called on the event loop."""

    @property
    def rows(self) -> int:
        """How many hypotheses decode at once at most."""

    async def start(self, listener: ReplicaListener) -> None:
        """Be ready to decode.

        Raises:
            StartupError: it cannot be.
        """

    def submit(self, task: Task) -> None:
        """Decode a sentence; a report will tell of its end."""

    def cancel(self, number: int) -> None:
        """Give the task of that number up; a report will tell of its end, unless it has."""

    async def stop(self) -> None:
        """End now, whatever is decoding."""
