"""The messages between the server and the process that forks replicas.

The server sends the number of a replica, and with it the file descriptor of the replica's connection. The process
answers with the line "N pid P" when replica N has process P, and with the line "N code C" when that process has ended.
C is negative if a signal ended it.
"""

from __future__ import annotations

import socket
import struct

PID, CODE = "pid", "code"

_NUMBER = struct.Struct("<I")


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
