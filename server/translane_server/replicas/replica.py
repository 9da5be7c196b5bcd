"""The seam between the dispatcher and what decodes."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from translane_server.request import AlignedToken, Sentence, SentenceResult


class Task(NamedTuple):
    """A sentence for a replica.

    Attributes:
        number: the dispatcher's name for it.
        sentence: to decode.
        priority: of its request.
        submitted_at: when its request was accepted [seconds of `time.perf_counter`].
    """

    number: int
    sentence: Sentence
    priority: int
    submitted_at: float


class Progress(NamedTuple):
    """What is certain of a sentence that is decoding; see `request.OnProgress`."""

    number: int
    token_ids: tuple[int, ...]
    alignment: tuple[AlignedToken, ...]


class Report(NamedTuple):
    """What a replica has to tell.

    Attributes:
        ended: numbers of tasks that need no more rows, and their results; None where they were cancelled.
        progress: the newest of each task.
        measurements: names and arguments of calls of an `EngineObserver`, in order.
    """

    ended: tuple[tuple[int, SentenceResult | None], ...] = ()
    progress: tuple[Progress, ...] = ()
    measurements: tuple[tuple[str, tuple[float, ...]], ...] = ()


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
        """Give a task up; a report will tell of its end, unless it has."""

    async def stop(self) -> None:
        """End now, whatever is decoding."""
