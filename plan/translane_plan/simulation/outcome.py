"""The outcome of a simulation."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from translane_client.bench.measurement import quantile

# A queue that grows without end makes the waits of the second half three times as long as those of the first. Chance
# alone does less.
_GROWTH = 1.5
_FEWEST = 16  # answers that say something about growth


@dataclass(frozen=True)
class Outcome:
    """What a simulated machine did, without the warm-up.

    Attributes:
        latencies: from the arrival of each request to its answer, in the order of the answers [seconds].
        refused: requests that were refused.
        seconds: time in which the requests were answered.
        sentences: sentences of a request.
        front_ends: share of the time in which the event loops of front ends worked, of all of them.
        replicas: share of the time in which replicas worked.
        cores: share of the cores' time that was used.
        rows: mean number of rows of a step.
        open_requests: mean number of requests that were open.
    """

    latencies: Sequence[float]
    refused: int
    seconds: float
    sentences: int
    front_ends: float
    replicas: float
    cores: float
    rows: float
    open_requests: float

    @property
    def rate(self) -> float:
        """Sentences answered a second."""
        return len(self.latencies) * self.sentences / self.seconds if self.seconds > 0 else 0.0

    @cached_property
    def _ordered(self) -> list[float]:
        return sorted(self.latencies)

    def latency(self, share: float) -> float:
        """The latency that a `share` of the answers stays within [seconds]; nan without answers."""
        return quantile(self._ordered, share)

    @property
    def grows(self) -> bool:
        """Whether waits grow until the end: the machine gets more than it can do."""
        half = len(self.latencies) // 2
        if 2 * half < _FEWEST:
            return False
        return statistics.fmean(self.latencies[half:]) > _GROWTH * statistics.fmean(self.latencies[:half])

    def keeps(self, p95: float) -> bool:
        """Whether 95% of all requests are answered within `p95` seconds, and will be if the load goes on."""
        return not self.refused and not self.grows and self.latency(0.95) <= p95
