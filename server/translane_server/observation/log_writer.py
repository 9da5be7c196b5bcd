"""Writes the log's lines so that nothing ever waits for whoever reads the log.

A pipe holds 64 KiB. When its reader stops to read, a plain write waits for ever, and with it the whole server. Here
lines wait in a buffer instead. When the buffer is full, new lines are dropped and counted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Iterator

# Size of the lines that wait [bytes]. A longer line is taken if none waits.
_MOST_BYTES = 1 << 20

# A pipe that is ready takes so many bytes at once without a wait.
_WRITTEN_AT_ONCE = select.PIPE_BUF

# After it has written, the thread lets lines gather for this time [seconds]: a turn of it costs more than a line.
_GATHERING_TIME = 0.02

# Time to write what waits, when the server ends, and when there is no thread for it [seconds].
_LAST_TIME = 1.0
_SHORT_TIME = 0.05

_FOR_EVER = float("inf")


class LineHandler(logging.Handler):
    """Writes lines to a file descriptor, in order.

    At first, a call waits a moment until its line is written, and leaves the line to later calls if that does not
    suffice. This needs no thread, so it is right for replicas, which fork. Between `start` and `stop`, a thread writes,
    and no call waits.

    Lines that the descriptor refuses, as a full disk does, are dropped and counted too. The next line that is written
    tells how many lines are missing.

    Args:
        descriptor: file descriptor; the caller closes it.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._ready = select.poll()
        self._ready.register(descriptor, select.POLLOUT)
        self._changed = threading.Condition()
        self._lines: deque[tuple[bytes, int]] = deque()  # with how many lines are missing before them
        self._size = 0  # of the lines [bytes]
        self._written = 0  # of the first line [bytes]
        self._dropped = 0
        self._is_torn = False  # whether the last line that was written has no end
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def start(self) -> None:
        """Let a thread write from now on.

        Raises:
            RuntimeError: no thread can be started.
        """
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write what waits, for a second at most, and end the thread."""
        with self._changed:
            self._stopping.set()
            self._changed.notify_all()
        if self._thread:
            self._thread.join(_LAST_TIME)  # if it waits for a reader, it ends with the process

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._encoded(record)
        except Exception:  # noqa: BLE001 the handlers of the standard library treat a bad record so
            self.handleError(record)
            return
        with self._changed:
            if self._lines and self._size + len(line) > _MOST_BYTES:
                self._dropped += 1
                return
            missing, self._dropped = self._dropped, 0
            if missing:
                line = self._encoded(_told(missing)) + line
            self._lines.append((line, missing))
            self._size += len(line)
            self._changed.notify_all()
        if not (self._thread and self._thread.is_alive()):
            self._write(_SHORT_TIME)

    def _encoded(self, record: logging.LogRecord) -> bytes:
        return self.format(record).encode(errors="backslashreplace") + b"\n"

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._stopping.is_set())
                if not self._lines:
                    return
            self._write(_FOR_EVER)
            self._stopping.wait(_GATHERING_TIME)

    def _write(self, seconds: float) -> None:
        """Write the lines that wait, for `seconds` at most.

        Only one thread calls it at a time: the one of `start`, or whoever emits, one after the other as `Handler` does.
        """
        ends = time.monotonic() + seconds
        while self._lines:
            line, missing = self._lines[0]
            part = line[self._written : self._written + _WRITTEN_AT_ONCE]
            if self._is_torn:
                part = b"\n" + part[:-1]
            left = ends - time.monotonic()
            try:
                if not self._ready.poll(None if left == _FOR_EVER else max(0.0, 1000 * left)):
                    return
                written = os.write(self._descriptor, part)
            except BlockingIOError:  # another process was faster
                continue
            except OSError:  # no space is left, or there is no reader any more
                self._is_torn = self._is_torn or self._written > 0
                self._next(dropped=1 + missing)
                continue
            self._written += written - self._is_torn
            self._is_torn = False
            if self._written == len(line):
                self._next(dropped=0)

    def _next(self, dropped: int) -> None:
        with self._changed:
            line, _ = self._lines.popleft()
            self._size -= len(line)
            self._written = 0  # of the next line
            self._dropped += dropped


@contextlib.contextmanager
def written_in_background() -> Iterator[None]:
    """Let a thread write the log within the `with` block.

    Raises:
        RuntimeError: no thread can be started.
    """
    handlers = [handler for handler in logging.getLogger().handlers if isinstance(handler, LineHandler)]
    try:
        for handler in handlers:
            handler.start()
        yield
    finally:
        for handler in handlers:
            handler.stop()


def _told(missing: int) -> logging.LogRecord:
    message = "some lines of the log are missing, as they could not be written: %d"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, message, (missing,), None)
