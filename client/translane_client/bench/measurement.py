"""The outcome of one load on a server, as a line of a table and as JSON."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}  # the quantiles of the latency that are shown

_BOUNDED = QUANTILES["p95"]  # share of the requests that a search bounds

_LAG_FLOOR = 0.01  # seconds of lag that are normal: an event loop wakes up some milliseconds late
_LAG_SHARE = 0.1  # share of the latency's 95th percentile; a lag beyond it distorts the measurement

_REPORTED = (
    *("rate", "clients", "texts_per_request", "seconds", "requests", "tokens_per_second", "unanswered"),
    *("fell_behind", "broken_off", "given_up"),
)

_WIDTH = 10
_NOTHING = "-"


@dataclass
class Measurement:
    """The answers to the requests that were due within the measured time.

    Latency counts from the moment when a request was due, and not from its sending: so the latency shows a generator
    that falls behind, and a server that holds the generator up. Either `rate` or `clients` is set.
    """

    rate: float | None  # sentences per second that the load offers
    clients: int | None  # number of clients; each sends a request as soon as its request before is answered
    texts_per_request: int
    start: float  # when the measured time begins, on the event loop's clock
    end: float
    seconds: float = 0.0  # how much of the measured time has passed
    latencies: array[float] = field(default_factory=lambda: array("d"))  # latency of each request that was answered [s]
    lags: array[float] = field(default_factory=lambda: array("d"))
    """Time from each request's due time to its sending [s]."""
    errors: Counter[str] = field(default_factory=Counter)  # gRPC status → requests that failed with it
    unanswered: int = 0  # requests without an answer at the end of a measurement that was broken off
    answered_within: int = 0  # sentences answered within the measured time, whenever they were sent
    tokens_within: int = 0  # target tokens of the sentences in `answered_within`, where the answers hold tokens
    broken_off: bool = False  # whether the measurement ended early
    given_up: bool = False  # whether the measurement ended because its bound could not be kept any more

    def covers(self, at: float) -> bool:
        return self.start <= at < self.end

    def keeps(self, seconds: float) -> bool:
        """Whether 95% of the requests were answered within so many seconds."""
        return self.requests > 0 and self.late(seconds) <= late_requests_allowed(self.requests)

    def late(self, seconds: float) -> int:
        """The number of requests that took longer. One that failed, or was not answered, took for ever."""
        return sum(latency > seconds for latency in self.latencies) + self.requests - len(self.latencies)

    @property
    def requests(self) -> int:
        """The number of requests measured, with the failed ones."""
        return len(self.latencies) + self.errors.total() + self.unanswered

    @property
    def sentences_per_second(self) -> float:
        return self.answered_within / self.seconds if self.seconds > 0 else 0.0

    @property
    def tokens_per_second(self) -> float | None:
        """Target tokens answered per second; None where the answers hold no tokens."""
        return self.tokens_within / self.seconds if self.tokens_within and self.seconds > 0 else None

    @property
    def quantiles(self) -> dict[str, float]:
        """The latency [s] of the answered requests at each of QUANTILES; nan where none was answered."""
        ordered = sorted(self.latencies)
        return {name: quantile(ordered, share) for name, share in QUANTILES.items()}

    @property
    def lag(self) -> float:
        """The 99th percentile of `lags` [s]; 0 where no request was sent."""
        return quantile(sorted(self.lags), 0.99) if self.lags else 0.0

    @property
    def fell_behind(self) -> bool:
        """Whether the generator could not keep up, so that the latency is partly its own."""
        answered = quantile(sorted(self.latencies), 0.95) if self.latencies else 0.0
        return self.lag > max(_LAG_FLOOR, _LAG_SHARE * answered)

    def row(self, *, tokens: bool) -> str:
        """The line of the table; `tokens` adds a column of target tokens per second."""
        load = f"{self.rate:.4g}" if self.clients is None else str(self.clients)
        latencies = (_NOTHING if math.isnan(each) else f"{each * 1000:.1f}" for each in self.quantiles.values())
        rate = self.tokens_per_second
        spent = [_NOTHING if rate is None else f"{rate:,.0f}"] if tokens else []
        counts = [f"{name} {count}" for name, count in sorted(self.errors.items())]
        counts += [f"unanswered {self.unanswered}"] if self.unanswered else []
        return _line(load, f"{self.sentences_per_second:.1f}", *latencies, *spent, ", ".join(counts) or _NOTHING)

    def notes(self) -> list[str]:
        """Sentences that a reader of the line has to know."""
        load = f"{self.rate:.4g} sentences/s" if self.clients is None else f"{self.clients} clients"
        found = []
        if self.broken_off:
            found.append(f"{load}: broken off after {self.seconds:.1f} s of measuring")
        if self.fell_behind:
            found.append(
                f"{load}: this generator could not keep up: 1% of the requests were sent {self.lag * 1000:.0f} ms late"
                " or later, and their latency includes that"
            )
        return found

    def as_json(self) -> dict[str, Any]:
        """The measurement, in base units."""
        return {
            **{name: getattr(self, name) for name in _REPORTED},
            "answered_per_second": self.sentences_per_second,
            "latency_seconds": {k: None if math.isnan(value) else value for k, value in self.quantiles.items()},
            "lag_seconds": self.lag,
            "errors": dict(self.errors),
        }


def headings(*, clients: bool, tokens: bool) -> str:
    """The table's first line."""
    latencies = (f"{name} ms" for name in QUANTILES)
    spent = ["tokens/s"] if tokens else []
    return _line("clients" if clients else "offered/s", "answered/s", *latencies, *spent, "errors")


def _line(*cells: str) -> str:
    return "  ".join([*(cell.rjust(_WIDTH) for cell in cells[:-1]), cells[-1]])


def late_requests_allowed(requests: int) -> int:
    """How many of so many requests may be late."""
    return requests - math.ceil(_BOUNDED * requests)


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that a `share` of the `ordered` values does not exceed; nan where there are none."""
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
