"""The measurements of a replica. All times are in seconds."""

from __future__ import annotations

from typing import NamedTuple

EncodeRun = tuple[float, int]
"""Seconds and source tokens of one encoder run."""

RowRun = tuple[float, int]
"""Seconds and rows of one decode step, or of one copy of rows."""


class Measurements(NamedTuple):
    """Measurements, in the order in which they were taken.

    Attributes:
        encodes: runs of the encoder.
        queue_times: waiting time of each sentence, until it got its row; without the encoder run.
        steps: decode steps. Each row got one token.
        moves: copies of rows between two steps.
        first_token_times: time from the acceptance of each sentence to its first token.
    """

    encodes: list[EncodeRun]
    queue_times: list[float]
    steps: list[RowRun]
    moves: list[RowRun]
    first_token_times: list[float]

    @classmethod
    def none(cls) -> Measurements:
        """No measurements."""
        return cls([], [], [], [], [])
