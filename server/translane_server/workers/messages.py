"""The messages between the server and its replicas, and their bytes.

A message is its length and its body. The server sends the setup first. The replica answers with `Ready`, or with the
error that stops it. These are pickles, which are safe here: both ends are this program in one version, and no other
process has the socket. Then the server sends an `EngineInput` at a time, and the replica an `EngineOutput`, as
MessagePack.

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
from typing import Any, Literal, NamedTuple

import msgspec

from translane_server.bundle.bundle import Bundle
from translane_server.bundle.devices import Device
from translane_server.engine.sequence import EngineInput, EngineOutput, Sequence, TargetVocabulary, WireSequence


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


def framed(body: bytes) -> bytes:
    """A message: its length and its body."""
    return _NUMBER.pack(len(body)) + body


def of_object(message: WorkerSetup | Ready | Exception) -> bytes:
    """The first message of either side; `pickle.loads` reads its body."""
    return framed(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))


def of_input(told: EngineInput) -> bytes:
    """A message with an input, whose body `read_input` reads."""
    return framed(_encode(([each.to_wire() for each in told.sequences], told.cancelled, told.answer)))


def read_input(body: bytearray) -> EngineInput:
    """The input in the body of a message."""
    sequences, cancelled, answer = _inputs.decode(body)
    return EngineInput([Sequence.from_wire(each) for each in sequences], cancelled, answer)


def of_output(output: EngineOutput) -> bytes:
    """A message with an output, whose body `read_output` reads."""
    return framed(_encode(output))


_encode = msgspec.msgpack.Encoder().encode
_inputs = msgspec.msgpack.Decoder(tuple[list[WireSequence], list[int], bool])
read_output = msgspec.msgpack.Decoder(EngineOutput).decode


class Frames:
    """Restores the bodies of messages from received bytes, in pieces of any size."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, data: bytes | memoryview) -> list[bytearray]:
        """Add received bytes; return the bodies of the messages that are complete by now."""
        bodies, received = [], self._received
        received += data
        start = 0
        while len(received) - start >= _NUMBER.size:
            (length,) = _NUMBER.unpack_from(received, start)
            end = start + _NUMBER.size + length
            if end > len(received):
                break
            bodies.append(received[start + _NUMBER.size : end])
            start = end
        del received[:start]
        return bodies


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
