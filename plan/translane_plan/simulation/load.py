"""The load of a simulation: when requests come, and what is in them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from translane_client.bench.schedule import arrivals
from translane_plan.lengths import drawn
from translane_plan.profile import Length


@dataclass(frozen=True)
class Load:
    """Requests that come at given times, or calls of callers who wait for each answer.

    Attributes:
        times: when requests come [seconds], ascending; empty if callers wait.
        lengths: the lengths of the sentences, in their order.
        requests: number of requests.
        sentences: sentences of a request.
        calls: calls that are open at the same time, if callers wait.
        connections: connections of all callers, each to a front end that chance chooses; 0: as many as requests.
        warm_up: share of the requests, from the first on, that are not counted.
    """

    lengths: Iterator[Length]
    requests: int
    times: Sequence[float] = ()
    sentences: int = 1
    calls: int = 0
    connections: int = 0
    warm_up: float = 0.1

    def request(self) -> list[Length]:
        """The lengths of the next request's sentences."""
        return list(itertools.islice(self.lengths, self.sentences))


def poisson(rate: float, requests: int, lengths: Sequence[Length], *, sentences: int = 1, seed: int = 0) -> Load:
    """Requests at the times of a Poisson process, with lengths that chance draws.

    Args:
        rate: sentences a second.
        requests: number of requests.
        lengths: to draw from.
        sentences: sentences of a request.
        seed: the same seed gives the same load.
    """
    times = list(itertools.islice(arrivals(rate / sentences, seed), requests))
    return Load(drawn(lengths, seed), requests, times, sentences)


def waiting_callers(
    calls: int, requests: int, lengths: Sequence[Length], *, connections: int = 0, warm_up: float = 0.25, seed: int = 0
) -> Load:
    """Callers who keep `calls` calls open. All begin at once, so more of the first calls are not counted."""
    return Load(drawn(lengths, seed), requests, calls=calls, connections=connections, warm_up=warm_up)
