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
from collections.abc import Callable, Iterator
from contextvars import Context
from typing import ClassVar

# Most bytes that wait. A longer record is taken if nothing waits.
_MOST_BYTES = 1 << 20

# Most records that wait to be made.
_MOST_RECORDS = 4096

# A pipe that is ready takes so many bytes at once without a wait.
_WRITTEN_AT_ONCE = select.PIPE_BUF

# After it has written, the thread lets lines gather for this time [seconds]: a turn of it costs more than a line.
_GATHERING_TIME = 0.1

# Time to write what waits, when the server ends, and when there is no thread for it [seconds].
_LAST_TIME = 1.0
_SHORT_TIME = 0.05


class LineHandler(logging.Handler):
    """Writes lines to a file descriptor, in order. The caller closes it.

    At first, a call waits a moment until its line is written, and leaves the line to later calls if that does not
    suffice. This needs no thread, so it is right for replicas, which fork. Between `start` and `stop`, a thread writes,
    and no call waits.

    Lines that the descriptor refuses, as a full disk does, are dropped and counted too. Before the next line that is
    written, the log says how many lines are missing.
    """

    in_background: ClassVar[LineHandler | None] = None  # the one whose thread writes; None if there is none

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._ready = select.poll()
        self._ready.register(descriptor, select.POLLOUT)
        self._changed = threading.Condition()  # guards the fields below
        self._records: deque[Callable[[], logging.LogRecord]] = deque()  # that are made and written later
        self._is_idle = False  # whether the thread waits for lines
        self._waiting = bytearray()  # lines, of which the first one may be written in part
        self._dropped = 0
        self._is_within = False  # whether a part of the first line is written
        self._is_torn = False  # whether the last line that was written has no end
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def start(self) -> None:
        """Let a thread write from now on. RuntimeError: no thread can be started."""
        self._stopping.clear()
        thread = threading.Thread(target=self._run, name="log", daemon=True)
        thread.start()
        self._thread = thread
        LineHandler.in_background = self

    def stop(self) -> None:
        """Write what waits, for a second at most, and end the thread."""
        LineHandler.in_background = None
        with self._changed:
            self._stopping.set()
            self._changed.notify_all()
        if self._thread:
            self._thread.join(_LAST_TIME)  # if it waits for a reader, it ends with the process

    def emit(self, record: logging.LogRecord) -> None:
        with self._changed:
            self._make_records()
            self._add(record)
            self._changed.notify_all()
        if not (self._thread and self._thread.is_alive()):
            self._write(_SHORT_TIME)

    def emit_later(self, make: Callable[[], logging.LogRecord]) -> None:
        """Let the thread make a record and write it, in order with others.

        For lines that come with each call: to make many of them one after the other takes a fraction of the time.
        """
        if len(self._records) < _MOST_RECORDS:
            self._records.append(make)
        else:
            with self._changed:
                self._dropped += 1
        if self._is_idle:
            with self._changed:
                self._changed.notify_all()

    def _make_records(self) -> None:
        """Make and add the records that wait, without the context of whoever logs now: they have their own."""
        while self._records:
            Context().run(lambda: self._add(self._records.popleft()()))

    def _add(self, record: logging.LogRecord) -> None:
        try:
            lines = self._encoded(record)
        except Exception:  # noqa: BLE001 the handlers of the standard library treat a bad record so
            self.handleError(record)
            return
        if self._waiting and len(self._waiting) + len(lines) > _MOST_BYTES:
            self._dropped += lines.count(b"\n")
        else:
            self._waiting += lines

    def _encoded(self, record: logging.LogRecord) -> bytes:
        return self.format(record).encode(errors="backslashreplace") + b"\n"

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_idle = True  # before the look at what waits: what comes after the look wakes the thread
                self._changed.wait_for(lambda: self._waiting or self._records or self._stopping.is_set())
                self._is_idle = False
                self._make_records()
                if not self._waiting and self._stopping.is_set():
                    return
            self._write(None)
            self._stopping.wait(_GATHERING_TIME)

    def _write(self, seconds: float | None) -> None:
        """Write what waits, for `seconds` at most; None for as long as it takes.

        Only one thread calls it at a time: the one of `start`, or whoever emits, one after the other as `Handler` does.
        """
        ends = None if seconds is None else time.monotonic() + seconds
        while self._waiting:
            left = None if ends is None else max(0.0, 1000 * (ends - time.monotonic()))
            if not self._ready.poll(left):
                return
            with self._changed:
                missing = 0 if self._is_within else self._dropped
                before = (b"\n" if self._is_torn else b"") + (self._encoded(_told(missing)) if missing else b"")
                part = before + self._waiting[: _WRITTEN_AT_ONCE - len(before)]
            try:
                written = os.write(self._descriptor, part)
            except BlockingIOError:  # another process was faster
                continue
            except OSError:  # no space is left, or there is no reader any more
                self._drop_line()
                continue
            with self._changed:
                if written < len(before):
                    self._is_torn = True
                    continue
                self._dropped -= missing
                self._is_torn = False
                self._is_within = part[written - 1 : written] != b"\n"
                del self._waiting[: written - len(before)]

    def _drop_line(self) -> None:
        with self._changed:
            del self._waiting[: self._waiting.index(b"\n") + 1]
            self._dropped += 1
            self._is_torn = self._is_torn or self._is_within
            self._is_within = False


@contextlib.contextmanager
def written_in_background() -> Iterator[None]:
    """Let a thread write the log within the `with` block. RuntimeError: no thread can be started."""
    with contextlib.ExitStack() as stack:
        for handler in logging.getLogger().handlers:
            if isinstance(handler, LineHandler):
                stack.callback(handler.stop)
                handler.start()
        yield


def _told(missing: int) -> logging.LogRecord:
    message = "some lines of the log are missing, as they could not be written: %d"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, message, (missing,), None)
