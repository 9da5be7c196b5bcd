"""The messages between the server and its replicas, and their bytes.

A message is its length and a pickle. Pickles are safe here: both ends are this program in one version, and no other
process has the socket. The server sends the setup first. The replica answers with `Ready`, or with the error that stops
it. Then the server sends `Orders`, and the replica sends reports.

Orders and reports are packed into plain tuples, because pickling named tuples takes ten times as long.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from itertools import starmap
from typing import Any, NamedTuple

from translane_server.engine.sequence import (
    AlignedToken,
    CertainTokens,
    Hypothesis,
    Measurements,
    Sentence,
    SentenceResult,
    Task,
    Timing,
)
from translane_server.workers.interface import Report

RECEIVED_AT_ONCE = 1 << 16
"""Most bytes of one read from a socket."""

_LENGTH = struct.Struct("<I")


class Ready(NamedTuple):
    """The replica is ready for orders."""


class Orders(NamedTuple):
    """Orders for a replica.

    Attributes:
        tasks: new tasks.
        cancelled: numbers of tasks to drop. They may be in `tasks`, or may have ended.
        answer: whether the replica must send a report, even an empty one: a sign of life.
    """

    tasks: Sequence[Task]
    cancelled: Sequence[int]
    answer: bool = False


def framed(message: object) -> bytes:
    """The bytes of a message: its length and its pickle."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Restores messages from received bytes, in pieces of any size."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, data: bytes | memoryview) -> list[Any]:
        """Add received bytes; return the messages that are complete by now."""
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


def pack_orders(orders: Orders) -> tuple[Any, ...]:
    """Turn orders into plain tuples."""
    return [(*task[:-1], *task.sentence) for task in orders.tasks], orders.cancelled, orders.answer


def unpack_orders(packed: tuple[Any, ...]) -> Orders:
    """Restore orders from `pack_orders`."""
    tasks, cancelled, answer = packed
    first = len(Task._fields) - 1  # place of the sentence's first field
    return Orders([Task._make((*each[:first], Sentence._make(each[first:]))) for each in tasks], cancelled, answer)


def pack_report(report: Report) -> tuple[Any, ...]:
    """Turn a report into plain tuples."""
    return (
        [(number, *_packed_result(result)) for number, result in report.ended],
        report.dropped,
        [(number, ids, _packed_alignment(alignment)) for number, (ids, alignment) in report.certain],
        tuple(report.measurements),
        report.failed,
    )


def unpack_report(packed: tuple[Any, ...]) -> Report:
    """Restore a report from `pack_report`."""
    ended, dropped, certain, measurements, failed = packed
    return Report(
        [(number, _unpacked_result(hypotheses, timing)) for number, hypotheses, timing in ended],
        dropped,
        [(number, CertainTokens(ids, _unpacked_alignment(alignment))) for number, ids, alignment in certain],
        Measurements(*measurements),
        failed,
    )


def _packed_result(result: SentenceResult) -> tuple[Any, ...]:
    return [(*each[:-1], _packed_alignment(each.alignment)) for each in result.hypotheses], tuple(result.timing)


def _unpacked_result(hypotheses: Sequence[tuple[Any, ...]], timing: Sequence[Any]) -> SentenceResult:
    found = [Hypothesis._make((*each[:-1], _unpacked_alignment(each[-1]))) for each in hypotheses]
    return SentenceResult(tuple(found), Timing(*timing))


def _packed_alignment(alignment: tuple[AlignedToken, ...]) -> tuple[tuple[int, float], ...]:
    return tuple([(each.source_token, each.weight) for each in alignment]) if alignment else ()


def _unpacked_alignment(packed: tuple[tuple[int, float], ...]) -> tuple[AlignedToken, ...]:
    return tuple(starmap(AlignedToken, packed)) if packed else ()
