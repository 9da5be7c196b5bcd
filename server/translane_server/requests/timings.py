"""The times of an answer: of its sentences, of its parts, and of its steps."""

from __future__ import annotations

from collections.abc import Sequence

from translane.v1 import translation_pb2 as pb
from translane_server.sentence import SentenceResult

_NANOSECONDS = 1_000_000_000  # of a second
_PHASES = ("queue", "encode", "decode")


def timing(results: Sequence[SentenceResult], total: float, cached_texts: int = 0) -> pb.Timing:
    """Return the time of the slowest sentence in each phase, and the `total` time. All times are in seconds."""
    message = pb.Timing(cached_texts=cached_texts)
    queue = encode = decode = 0.0
    for result in results:
        phases = result.timing
        queue, encode, decode = max(queue, phases.queue), max(encode, phases.encode), max(decode, phases.decode)
    for name, seconds in (("queue", queue), ("encode", encode), ("decode", decode)):
        _set(message, name, seconds)
    set_total(message, total)
    return message


def set_total(message: pb.Timing, seconds: float) -> None:
    """Set the time from the request to the answer."""
    _set(message, "total", seconds)


def keep_slowest(message: pb.Timing, other: pb.Timing) -> None:
    """Keep the longer time of each phase, for parts of a request that run at the same time. Add cached texts."""
    message.cached_texts += other.cached_texts
    for phase in _PHASES:
        slowest = max(getattr(message, phase).ToNanoseconds(), getattr(other, phase).ToNanoseconds())
        getattr(message, phase).FromNanoseconds(slowest)


def add_times(message: pb.Timing, first: pb.Timing) -> None:
    """Add all times of `first`, for steps of a request that run one after the other. Cached texts stay the last's."""
    for phase in (*_PHASES, "total"):
        both = getattr(message, phase).ToNanoseconds() + getattr(first, phase).ToNanoseconds()
        getattr(message, phase).FromNanoseconds(both)


def _set(message: pb.Timing, name: str, seconds: float) -> None:
    duration = getattr(message, name)
    duration.seconds, duration.nanos = divmod(round(seconds * _NANOSECONDS), _NANOSECONDS)
