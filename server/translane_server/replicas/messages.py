"""What the server and its replicas' processes tell each other, as bytes.

Both ends are this program, of one version, and nobody else holds an end of their socket: messages are pickles of plain
tuples, each after its length.
"""

from __future__ import annotations

import pickle
import struct
from functools import lru_cache
from typing import Any, NamedTuple

from translane_server.options import DecodingOptions
from translane_server.replicas.replica import Progress, Report, Task
from translane_server.request import AlignedToken, FinishReason, Hypothesis, Sentence, SentenceResult, Timing

RECEIVED_AT_ONCE = 1 << 16
"""Bytes that are read from a socket in one go."""

_LENGTH = struct.Struct("<I")
_DISTINCT_OPTIONS = 256  # requests of one kind have equal options: they are pickled once


class Cancel(NamedTuple):
    """What the server sends to give up a task. Anything else is a packed task."""

    number: int


def framed(message: object) -> bytes:
    """A message as it is sent."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Makes messages of received bytes, however they were cut."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, data: bytes) -> list[Any]:
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


def pack_task(task: Task) -> tuple[Any, ...]:
    """A task as a plain tuple. Progress is told where its sentence has someone who listens."""
    sentence = task.sentence
    return (
        task.number,
        task.priority,
        task.submitted_at,
        sentence.source_ids,
        _packed_options(sentence.options) if _is_common(sentence.options) else sentence.options,
        sentence.forced_ids,
        sentence.counted_ids,
        sentence.word_follows,
        sentence.required_phrases,
        sentence.on_progress is not None,
    )


def unpack_task(packed: tuple[Any, ...]) -> tuple[Task, bool]:
    """The task, and whether its progress is to be told."""
    number, priority, submitted_at, source_ids, options, forced_ids, counted, word_follows, phrases, told = packed
    if isinstance(options, bytes):
        options = _unpacked_options(options)
    sentence = Sentence(source_ids, options, forced_ids, counted, word_follows, phrases)
    return Task(number, sentence, priority, submitted_at), told


def pack_report(report: Report) -> tuple[Any, ...]:
    """A report as a plain tuple."""
    ended = [(number, None if result is None else _packed_result(result)) for number, result in report.ended]
    progress = [(number, ids, _packed_alignment(alignment)) for number, ids, alignment in report.progress]
    return ended, progress, report.measurements


def unpack_report(packed: tuple[Any, ...]) -> Report:
    """The report."""
    ended, progress, measurements = packed
    return Report(
        tuple((number, None if result is None else _unpacked_result(result)) for number, result in ended),
        tuple(Progress(number, ids, _unpacked_alignment(alignment)) for number, ids, alignment in progress),
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


def _packed_result(result: SentenceResult) -> tuple[Any, ...]:
    timing = result.timing
    hypotheses = [
        (each.token_ids, each.score, each.finish_reason.value, each.token_log_probs, _packed_alignment(each.alignment))
        for each in result.hypotheses
    ]
    return hypotheses, timing.queue, timing.encode, timing.decode


def _unpacked_result(packed: tuple[Any, ...]) -> SentenceResult:
    hypotheses, *timing = packed
    return SentenceResult(
        tuple(
            Hypothesis(ids, score, FinishReason(reason), log_probs, _unpacked_alignment(alignment))
            for ids, score, reason, log_probs, alignment in hypotheses
        ),
        Timing(*timing),
    )


def _packed_alignment(alignment: tuple[AlignedToken, ...]) -> tuple[tuple[int, float], ...]:
    return tuple((each.source_token, each.weight) for each in alignment)


def _unpacked_alignment(packed: tuple[tuple[int, float], ...]) -> tuple[AlignedToken, ...]:
    return tuple(AlignedToken(*each) for each in packed)
