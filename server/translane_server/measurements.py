"""What a replica measures while it decodes. All times are in seconds."""

from __future__ import annotations

from typing import NamedTuple

EncodeRun = tuple[float, int]
"""Seconds, and source tokens: sentences were encoded together."""

RowRun = tuple[float, int]
"""Seconds, and rows: a decoder step, or a copy of rows."""


class Measurements(NamedTuple):
    """Measurements in the order in which they were taken.

    Attributes:
        encodes: times the encoder was called.
        queue_times: how long each sentence waited for its row.
        steps: decoder steps; each row got one token.
        moves: copies of hypotheses to other rows, between two steps.
        first_token_times: from the acceptance of each sentence to its first token.
    """

    encodes: list[EncodeRun]
    queue_times: list[float]
    steps: list[RowRun]
    moves: list[RowRun]
    first_token_times: list[float]

    @classmethod
    def none(cls) -> Measurements:
        """Nothing yet."""
        return cls([], [], [], [], [])
