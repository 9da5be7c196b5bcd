"""Whether what a server holds grows while it is used."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.reliability.resources import MEGABYTE

_PART = 0.2  # of the samples: the first ones are compared with the last ones
_LEAST = 10  # samples

# The most growth from the first samples to the last ones: memory by this share, or by so much if that is more.
_SHARE, _BYTES = 0.1, 24 * MEGABYTE
_FILES, _THREADS = 12, 6


@dataclass(frozen=True)
class Sample:
    """What was held at a time.

    Attributes:
        seconds: since the beginning.
        server: memory of the process that takes requests [bytes].
        replicas: memory of all other processes [bytes].
        files: open descriptors of all processes.
        threads: threads of all processes.
    """

    seconds: float
    server: float
    replicas: float
    files: float
    threads: float


@dataclass(frozen=True)
class Trend:
    """A quantity's medians among the first and the last samples, and its slope."""

    first: float
    last: float
    slope_per_hour: float
    is_growth: bool


def trends(samples: Sequence[Sample]) -> dict[str, Trend]:
    """Return the trend of each quantity; memory in MiB.

    Raises:
        ValueError: there are too few samples.
    """
    if len(samples) < _LEAST:
        raise ValueError(f"{len(samples)} samples are too few to tell growth from")
    return {
        "memory of the server [MiB]": _memory(samples, [sample.server for sample in samples]),
        "memory of replicas [MiB]": _memory(samples, [sample.replicas for sample in samples]),
        "descriptors": _trend(samples, [sample.files for sample in samples], _FILES),
        "threads": _trend(samples, [sample.threads for sample in samples], _THREADS),
    }


def _memory(samples: Sequence[Sample], values: Sequence[float]) -> Trend:
    allowed = max(_SHARE * statistics.median(values), _BYTES) / MEGABYTE
    return _trend(samples, [value / MEGABYTE for value in values], allowed)


def _trend(samples: Sequence[Sample], values: Sequence[float], allowed: float) -> Trend:
    part = max(1, round(_PART * len(values)))
    first, last = statistics.median(values[:part]), statistics.median(values[-part:])
    slope = statistics.linear_regression([sample.seconds for sample in samples], values).slope
    return Trend(first, last, 3600 * slope, last - first > allowed)
