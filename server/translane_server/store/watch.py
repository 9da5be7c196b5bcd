"""Ends a connection whose time is over, whatever the other end does."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from types import TracebackType

from translane_server.store.problems import PassingError, StoppedError

_TICK = 0.05  # from one look to the next [seconds]


class Watch:
    """Shuts connections down when their time is over, or when their work is given up.

    A socket's own timeout begins again with every byte. So a server that sends a byte now and then would hold a
    connection for ever. The watch has a thread, which sees what the reading thread cannot.

    Args:
        seconds: time of the connections.
        stop: is set when the work is given up.
    """

    def __init__(self, seconds: float, stop: threading.Event) -> None:
        self._seconds = seconds
        self._stop = stop
        self._ended = threading.Event()
        self._sockets: list[socket.socket] = []
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="download-watch", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def add(self, connection: socket.socket) -> None:
        """Watch a connection, too."""
        self._sockets.append(connection)
        if self._is_over:
            _shut_down(connection)

    def check(self) -> None:
        """Tell whether the watch has ended the connections.

        Raises:
            StoppedError: the work was given up.
            PassingError: the time is over.
        """
        if self._stop.is_set():
            raise StoppedError
        if self._is_over:
            raise PassingError(f"it did not arrive within {self._seconds:.0f} seconds")

    def _run(self) -> None:
        deadline = time.monotonic() + self._seconds
        while not self._ended.wait(_TICK):
            if self._stop.is_set() or time.monotonic() > deadline:
                self._is_over = True
                for connection in list(self._sockets):
                    _shut_down(connection)
                return


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):  # it is closed already
        # The method of a TLS socket would also take its keys from the thread that reads.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
