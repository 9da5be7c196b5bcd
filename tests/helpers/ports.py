"""Ports of this machine."""

import contextlib
import socket


def free_port() -> int:
    """A port that nobody listens on."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
