"""The messages between the server and its replicas, and their bytes.

A message is its length and a pickle. Pickles are safe here: both ends are this program in one version, and no other
process has the socket. The server sends the setup first. The replica answers with `Ready`, or with the error that stops
it. Then the server sends an `EngineInput` at a time, and the replica an `EngineOutput`. Both are packed into plain
tuples, because pickling named tuples takes ten times as long.

Replicas of one thread fork from one process. To this process the server sends the number of a replica, and with it the
file descriptor of the replica's connection. The process answers with the line "N pid P" when replica N has process P,
and with the line "N code C" when that process has ended. C is negative if a signal ended it.
"""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any, Literal, NamedTuple

from translane_server.bundle.bundle import Bundle
from translane_server.bundle.devices import Device
from translane_server.engine.sequence import (
    AlignedToken,
    CommittedTokens,
    EngineInput,
    EngineOutput,
    Hypothesis,
    SentenceResult,
    Sequence,
    StepStats,
    TargetVocabulary,
    Timing,
)


@dataclass(frozen=True)
class ModelSetup:
    """The model, and how replicas run it."""

    bundle: Bundle  # the checked bundle of the model
    device: Device  # the device that runs the model
    threads: int  # number of ONNX Runtime's threads in each replica
    source_capacity: int  # maximum number of source tokens of a sentence
    target_capacity: int  # maximum number of decode steps of a sentence
    name: str = ""  # the name under which the model is served, for the log
    log_format: Literal["plain", "json"] = "plain"  # see `logs.configure_logging`
    log_level: Literal["debug", "info", "warning", "error"] = "info"  # see `logs.configure_logging`
    log_always: Mapping[str, Any] = field(default_factory=dict)  # see `logs.configure_logging`


@dataclass(frozen=True)
class WorkerSetup:
    """The setup of one replica."""

    number: int  # number of the replica
    rows: int  # maximum number of hypotheses that decode at once
    vocabulary: TargetVocabulary  # the target vocabulary
    model: ModelSetup  # the model
    # number of ONNX Runtime's threads while no other replica of the model is at work, if that is more than
    # `model.threads`
    lone_threads: int = 1


RECEIVED_AT_ONCE = 1 << 16
"""Most bytes of one read from a socket."""

_NUMBER = struct.Struct("<I")


class Ready(NamedTuple):
    """The replica is ready for inputs."""


def framed(message: object) -> bytes:
    """The bytes of a message: its length and its pickle."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _NUMBER.pack(len(body)) + body


class Frames:
    """Restores messages from received bytes, in pieces of any size."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, data: bytes | memoryview) -> list[Any]:
        """Add received bytes; return the messages that are complete by now."""
        messages, received = [], self._received
        received += data
        start = 0
        while len(received) - start >= _NUMBER.size:
            (length,) = _NUMBER.unpack_from(received, start)
            end = start + _NUMBER.size + length
            if end > len(received):
                break
            messages.append(pickle.loads(received[start + _NUMBER.size : end]))  # noqa: S301 from this program
            start = end
        del received[:start]
        return messages


def pack_input(told: EngineInput) -> tuple[Any, ...]:
    """Turn an input into plain tuples."""
    return [sequence.to_wire() for sequence in told.sequences], told.cancelled, told.answer


def unpack_input(packed: tuple[Any, ...]) -> EngineInput:
    """Restore an input from `pack_input`."""
    sequences, cancelled, answer = packed
    return EngineInput([Sequence.from_wire(each) for each in sequences], cancelled, answer)


def pack_output(output: EngineOutput) -> tuple[Any, ...]:
    """Turn an output into plain tuples."""
    return (
        [
            (number, [(*each[:-1], each.alignment and _packed(each.alignment)) for each in hypotheses], tuple(timing))
            for number, (hypotheses, timing) in output.ended
        ],
        output.dropped,
        [(number, ids, alignment and _packed(alignment)) for number, (ids, alignment) in output.committed],
        tuple(output.stats),
        output.failed,
        output.is_starved,
    )


def unpack_output(packed: tuple[Any, ...]) -> EngineOutput:
    """Restore an output from `pack_output`."""
    ended, dropped, committed, stats, failed, is_starved = packed
    return EngineOutput(
        [
            (
                number,
                SentenceResult(
                    tuple([Hypothesis._make((*each[:-1], each[-1] and _unpacked(each[-1]))) for each in hypotheses]),
                    Timing(*timing),
                ),
            )
            for number, hypotheses, timing in ended
        ],
        dropped,
        [(number, CommittedTokens(ids, alignment and _unpacked(alignment))) for number, ids, alignment in committed],
        StepStats(*stats),
        failed,
        is_starved,
    )


def _packed(alignment: tuple[AlignedToken, ...]) -> tuple[tuple[int, float], ...]:
    return tuple([(each.source_token, each.weight) for each in alignment])


def _unpacked(alignment: tuple[tuple[int, float], ...]) -> tuple[AlignedToken, ...]:
    return tuple(starmap(AlignedToken, alignment))


PID, CODE = "pid", "code"


def send_connection(control: socket.socket, number: int, connection: socket.socket) -> None:
    """Ask for replica `number`, which serves `connection`. Raises OSError."""
    socket.send_fds(control, [_NUMBER.pack(number)], [connection.fileno()])


def receive_connection(control: socket.socket) -> tuple[int, socket.socket] | None:
    """The number of a replica that the server asks for, and its connection; None if the server asks for no more."""
    data, descriptors, _, _ = socket.recv_fds(control, _NUMBER.size, 1)
    return (_NUMBER.unpack(data)[0], socket.socket(fileno=descriptors[0])) if data else None


def report_line(number: int, what: str, value: int) -> bytes:
    """The line that tells the PID or the CODE of replica `number`."""
    return f"{number} {what} {value}\n".encode()


def read_report(line: str) -> tuple[int, str, int]:
    """What `report_line` was called with."""
    number, what, value = line.split()
    return int(number), what, int(value)
