"""What the server and its replicas' processes tell each other, as bytes.

Both ends are this program, of one version, and nobody else holds an end of their socket: messages are pickles of plain
tuples, each after its length. After the setup and its answer, the server sends lists of tasks and of the numbers of
those that it gives up, in order, and a replica sends reports.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from translane_server.job import Job
from translane_server.options import DecodingOptions
from translane_server.replica.seam import Measurement, Progress, Report
from translane_server.request import AlignedToken, FinishReason, Hypothesis, Sentence, SentenceResult, Timing

RECEIVED_AT_ONCE = 1 << 16
"""Bytes that are read from a socket in one go."""

_LENGTH = struct.Struct("<I")
_DISTINCT_OPTIONS = 256  # requests of one kind have equal options: they are pickled once


def framed(message: object) -> bytes:
    """A message as it is sent."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Makes messages of received bytes, however they were cut."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, data: bytes | memoryview) -> list[Any]:
        """Take bytes; return the messages that are complete by now."""
        messages, received = [], self._received
        received += data
        start = 0
        while len(received) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(received, start)
            end = start + _LENGTH.size + length
            if end > len(received):
                break
            messages.append(pickle.loads(received[start + _LENGTH.size : end]))  # noqa: S301 from this program
            start = end
        del received[:start]
        return messages


@dataclass(eq=False, slots=True)
class Task(Job):
    """A sentence that a replica is to decode, and the server's name for it."""

    number: int
    cancelled: bool = False


def pack_task(number: int, job: Job) -> tuple[Any, ...]:
    """A sentence as a plain tuple. Progress is told where it has someone who listens."""
    sentence = job.sentence
    return (
        number,
        job.priority,
        job.submitted_at,
        sentence.source_ids,
        _packed_options(sentence.options) if _is_common(sentence.options) else sentence.options,
        sentence.forced_ids,
        sentence.counted_ids,
        sentence.word_follows,
        sentence.required_phrases,
        sentence.on_progress is not None,
    )


def unpack_task(
    packed: tuple[Any, ...], on_progress: Callable[[int, tuple[int, ...], tuple[AlignedToken, ...]], None]
) -> Task:
    """The task; its number and its progress go to `on_progress` where somebody listens."""
    number, priority, submitted_at, source_ids, options, forced_ids, counted, word_follows, phrases, told = packed
    if isinstance(options, bytes):
        options = _unpacked_options(options)
    listener = partial(on_progress, number) if told else None
    sentence = Sentence(source_ids, options, forced_ids, counted, word_follows, phrases, listener)
    return Task(sentence, priority, submitted_at, number)


def pack_end(number: int, hypotheses: Sequence[Hypothesis] | None, timing: Timing) -> tuple[Any, ...]:
    """What a task came to, as a plain tuple; it has no hypotheses where it was cancelled."""
    return number, None if hypotheses is None else [_packed_hypothesis(each) for each in hypotheses], *timing


def pack_report(
    ended: Sequence[tuple[Any, ...]], progress: Iterable[Progress], measurements: Sequence[Measurement]
) -> tuple[Any, ...]:
    """A report as a plain tuple, of packed ends."""
    news = [(number, ids, _packed_alignment(alignment)) for number, ids, alignment in progress]
    return ended, news, measurements


def unpack_report(packed: tuple[Any, ...]) -> Report:
    """The report."""
    ended, progress, measurements = packed
    return Report(
        [_unpacked_end(*end) for end in ended],
        [Progress(number, ids, _unpacked_alignment(alignment)) for number, ids, alignment in progress],
        measurements,
    )


def _is_common(options: DecodingOptions) -> bool:
    """Whether others are likely to be equal; these are also small."""
    return options.sampling is None and not options.suppressed_phrases


@lru_cache(_DISTINCT_OPTIONS)
def _packed_options(options: DecodingOptions) -> bytes:
    return pickle.dumps(options, pickle.HIGHEST_PROTOCOL)


@lru_cache(_DISTINCT_OPTIONS)
def _unpacked_options(packed: bytes) -> DecodingOptions:
    options: DecodingOptions = pickle.loads(packed)  # noqa: S301 from this program
    return options


def _unpacked_end(
    number: int, packed: Sequence[tuple[Any, ...]] | None, queue: float, encode: float, decode: float
) -> tuple[int, SentenceResult | None]:
    if packed is None:
        return number, None
    return number, SentenceResult(
        tuple([_unpacked_hypothesis(*each) for each in packed]), Timing(queue, encode, decode)
    )


def _packed_hypothesis(hypothesis: Hypothesis) -> tuple[Any, ...]:
    return (
        hypothesis.token_ids,
        hypothesis.score,
        hypothesis.finish_reason is FinishReason.END_OF_SENTENCE,
        hypothesis.token_log_probs,
        _packed_alignment(hypothesis.alignment) if hypothesis.alignment else (),
    )


def _unpacked_hypothesis(
    ids: tuple[int, ...],
    score: float | None,
    complete: bool,
    log_probs: tuple[float, ...],
    alignment: tuple[tuple[int, float], ...],
) -> Hypothesis:
    reason = FinishReason.END_OF_SENTENCE if complete else FinishReason.MAX_LENGTH
    return Hypothesis(ids, score, reason, log_probs, _unpacked_alignment(alignment) if alignment else ())


def _packed_alignment(alignment: tuple[AlignedToken, ...]) -> tuple[tuple[int, float], ...]:
    return tuple([(each.source_token, each.weight) for each in alignment])


def _unpacked_alignment(packed: tuple[tuple[int, float], ...]) -> tuple[AlignedToken, ...]:
    return tuple([AlignedToken(*each) for each in packed])
