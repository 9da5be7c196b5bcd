"""The seam between the dispatcher and what decodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from translane_server.job import Job
from translane_server.request import AlignedToken, SentenceResult


class Progress(NamedTuple):
    """What is certain of a sentence that is decoding; see `request.OnProgress`."""

    number: int
    token_ids: tuple[int, ...]
    alignment: tuple[AlignedToken, ...]


Measurement = tuple[str, float] | tuple[str, float, int] | tuple[str, float, int, int]
"""The name of a method of an `EngineObserver`, and what it is called with."""


class Report(NamedTuple):
    """What a replica has to tell.

    Attributes:
        ended: numbers of tasks that need no more rows, and their results; None where they were cancelled.
        progress: the newest of each task.
        measurements: in order.
    """

    ended: Sequence[tuple[int, SentenceResult | None]] = ()
    progress: Sequence[Progress] = ()
    measurements: Sequence[Measurement] = ()


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

    def submit(self, number: int, job: Job) -> None:
        """Decode a sentence, the task of that number; a report will tell of its end."""

    def cancel(self, number: int) -> None:
        """Give a task up; a report will tell of its end, unless it has."""

    async def stop(self) -> None:
        """End now, whatever is decoding."""
