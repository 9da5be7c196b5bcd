"""Tells a service manager such as systemd when the server translates, and when it stops."""

from __future__ import annotations

import logging
import socket

_log = logging.getLogger(__name__)

# Longest wait for a manager that does not read [seconds]. The event loop waits meanwhile.
_TIMEOUT = 0.1


class ServiceManager:
    """The manager that listens at a socket.

    The messages are those of https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html

    Args:
        address: path of a unix datagram socket, or the name of an abstract one after "@"; the manager hands it over in
            the variable NOTIFY_SOCKET. Without an address nobody is told anything.
    """

    def __init__(self, address: str | None) -> None:
        self._address = address

    def ready(self) -> None:
        """The server translates."""
        self._tell("READY=1\nSTATUS=translating")

    def stopping(self) -> None:
        """The server finishes the requests that run, and ends."""
        self._tell("STOPPING=1\nSTATUS=finishing what is running")

    def _tell(self, state: str) -> None:
        """Send `state`. A manager that cannot be told is no reason to end: the log says so."""
        if not self._address:
            return
        # The name of an abstract socket starts with a zero byte.
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(_TIMEOUT)
                sender.sendto(state.encode(), address)
        except (OSError, ValueError) as error:  # ValueError: a zero byte within a path
            _log.warning("the service manager at NOTIFY_SOCKET cannot be told anything: %s", error)
