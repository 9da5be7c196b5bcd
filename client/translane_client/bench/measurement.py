"""What one load did to the server."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

QUANTILES = (0.5, 0.95, 0.99, 1.0)
"""Of the latency; those that are shown."""

_LAG_FLOOR = 0.01
"""Seconds; an event loop wakes up a few milliseconds after the time it was asked for."""
_LAG_SHARE = 0.1
"""Of the 95th percentile of the latency: beyond it the lag is no detail."""


@dataclass
class Measurement:
    """The answers to the requests that were due within the measured time.

    Latency counts from when a request was due, not from when it was sent: a generator that falls behind, or a server
    that holds it up, shows. Either `rate` or `clients` is set.
    """

    rate: float | None
    """Sentences per second that were offered."""
    clients: int | None
    """Clients, each of which sends a request when the one before is answered."""
    texts_per_request: int
    seconds: float = 0.0
    """The measured time."""
    latencies: array[float] = field(default_factory=lambda: array("d"))
    """Seconds of each request that was answered well."""
    lags: array[float] = field(default_factory=lambda: array("d"))
    """Seconds that each request was sent after it was due."""
    errors: Counter[str] = field(default_factory=Counter)
    """Requests that failed, by gRPC status."""
    unanswered: int = 0
    """Requests that were given up when the measurement was broken off."""
    answered_within: int = 0
    """Sentences that were answered within the measured time, whenever they were sent."""
    tokens_within: int = 0
    """Target tokens of those sentences, where the answers hold tokens."""
    broken_off: bool = False
    """Whether the measured time was cut short."""
    given_up: bool = False
    """Whether the bound it was held to could not be kept any more."""

    @property
    def requests(self) -> int:
        """Those that were measured, the failed ones included."""
        return len(self.latencies) + self.errors.total() + self.unanswered

    @property
    def sentences_per_second(self) -> float:
        """What was answered."""
        return self.answered_within / self.seconds if self.seconds > 0 else 0.0

    @property
    def tokens_per_second(self) -> float | None:
        """Target tokens that were answered; None where the answers tell nothing of tokens."""
        return self.tokens_within / self.seconds if self.tokens_within and self.seconds > 0 else None

    @property
    def quantiles(self) -> list[float]:
        """The latency in seconds at each of QUANTILES, of the requests that were answered; nan where none was."""
        ordered = sorted(self.latencies)
        return [quantile(ordered, share) for share in QUANTILES]

    def quantile_of_all(self, share: float) -> float:
        """The latency in seconds at `share` of all requests: one that failed is infinitely late."""
        failed = self.requests - len(self.latencies)
        return quantile([*sorted(self.latencies), *[math.inf] * failed], share)

    @property
    def lag(self) -> float:
        """Seconds that requests were sent after they were due, at the 99th percentile; 0 where none was sent."""
        return quantile(sorted(self.lags), 0.99) if self.lags else 0.0

    @property
    def fell_behind(self) -> bool:
        """Whether the generator could not keep up, so that it measured itself."""
        answered = quantile(sorted(self.latencies), 0.95) if self.latencies else 0.0
        return self.lag > max(_LAG_FLOOR, _LAG_SHARE * answered)


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest of the values, which are in order, that `share` of them do not exceed; nan of none."""
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
