"""A progress bar for a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

_WIDTH = 24
_INTERVAL = 0.1
"""Seconds between two drawings."""


class ProgressBar:
    """Draws "  1,234 sentences   56/s   78% [####    ]  0:12 left" on one line of a terminal.

    Args:
        stream: The terminal.
        total: Bytes of the input, or texts of a document. None, where that is not known: no percentage, bar and time
            left are drawn.
        clock: Monotonic seconds.
    """

    def __init__(self, stream: TextIO, total: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._total = total
        self._clock = clock
        self._started = clock()
        self._drawn: float | None = None
        self._sentences = 0
        self._bytes = 0

    def advance(self, size: int, sentences: int = 1) -> None:
        """Counts more sentences, of `size` bytes together, as done."""
        self._sentences += sentences
        self._bytes += size
        now = self._clock()
        if self._drawn is None or now - self._drawn >= _INTERVAL:
            self._draw(now)

    def close(self) -> None:
        """Draws the last state and ends the line."""
        if self._drawn is not None:
            self._draw(self._clock())
            self._stream.write("\n")
            self._stream.flush()

    def _draw(self, now: float) -> None:
        self._drawn = now
        elapsed = now - self._started
        rate = self._sentences / elapsed if elapsed > 0 else 0.0
        parts = [f"{self._sentences:,} sentences", f"{rate:,.0f}/s"]
        if self._total:
            share = min(1.0, self._bytes / self._total)
            filled = int(share * _WIDTH)
            parts.append(f"{share:4.0%} [{'#' * filled}{' ' * (_WIDTH - filled)}]")
            if self._bytes:
                parts.append(f"{_clock_face(elapsed * max(0, self._total - self._bytes) / self._bytes)} left")
        self._stream.write("\r" + "  ".join(parts) + "\x1b[K")
        self._stream.flush()


def _clock_face(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
