"""How far a command is, and whom it waits for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from translane_client.retry import ATTEMPTS

_WIDTH = 24
_INTERVAL = 0.1
"""Seconds between two drawings."""

_SILENCE = 1.0
"""Seconds in which nobody wonders why nothing happens."""


class ProgressBar:
    """Draws "  1,234 sentences   56/s   78% [####    ]  0:12 left" on one line of a terminal.

    Args:
        stream: The terminal. None: nothing is drawn.
        total: Bytes of the input, or texts of a document. None, where that is not known: no percentage, bar and time
            left are drawn.
    """

    def __init__(self, stream: TextIO | None, total: int | None) -> None:
        self._stream = stream
        self.total = total
        self.sentences = 0
        self._bytes = 0
        self._started = time.monotonic()
        self._drawn: float | None = None

    def advance(self, size: int, sentences: int = 1) -> None:
        """Counts more sentences, of `size` bytes together, as done."""
        self.sentences += sentences
        self._bytes += size
        now = time.monotonic()
        if self._drawn is None or now - self._drawn >= _INTERVAL:
            self._draw(now)

    def close(self) -> None:
        """Draws the last state and ends the line."""
        if self._drawn is not None:
            self._draw(time.monotonic(), end="\n")

    def _draw(self, now: float, end: str = "") -> None:
        if self._stream is None:
            return
        self._drawn = now
        elapsed = now - self._started
        rate = self.sentences / elapsed if elapsed > 0 else 0.0
        parts = [f"{self.sentences:,} sentences", f"{rate:,.0f}/s"]
        if self.total:
            share = min(1.0, self._bytes / self.total)
            filled = int(share * _WIDTH)
            parts.append(f"{share:4.0%} [{'#' * filled}{' ' * (_WIDTH - filled)}]")
            if self._bytes:
                parts.append(f"{clock_face(elapsed * max(0, self.total - self._bytes) / self._bytes)} left")
        self._stream.write("\r" + "  ".join(parts) + "\x1b[K" + end)
        self._stream.flush()


def clock_face(seconds: float) -> str:
    """Such as 0:12, or 1:00:12."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def waiting_told(say: Callable[[str], None]) -> Iterator[None]:
    """Says why attempts of the block fail, each reason once, from the second second on."""
    handler = _Teller(say)
    before = ATTEMPTS.level
    ATTEMPTS.addHandler(handler)
    ATTEMPTS.setLevel(logging.INFO)
    try:
        yield
    finally:
        ATTEMPTS.setLevel(before)
        ATTEMPTS.removeHandler(handler)


class _Teller(logging.Handler):
    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._say = say
        self._begun = time.monotonic()
        self._told = set[str]()

    def emit(self, record: logging.LogRecord) -> None:
        reason = record.getMessage()
        if reason not in self._told and time.monotonic() - self._begun >= _SILENCE:
            self._told.add(reason)
            self._say(f"{reason}; trying again")
