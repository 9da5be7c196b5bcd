"""How far long work is: a bar on a terminal, and lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

_WIDTH = 24
_BAR_SECONDS, _LINE_SECONDS = 0.1, 10.0  # between two drawings of a bar, and between two lines


class Progress:
    """Draws "  1,234 sentences   56/s   78% [####    ]  0:12 left" on one line of a terminal.

    Elsewhere it says "1,234 of 1,582 sentences, 56 a second, 0:12 left", every ten seconds.

    Attributes:
        total: How much there is to do in all; None where that is not known.
        count: How many of `what` are done.
        note: Ends the bar, and each line.

    Args:
        what: What is counted.
        done: How many of them were done before.
        stream: Is drawn on if it is a terminal.
        say: Takes lines where `stream` is none; without it, nothing is said there.
    """

    def __init__(
        self,
        what: str,
        *,
        total: float | None = None,
        done: int = 0,
        stream: TextIO | None = None,
        say: Callable[[str], None] | None = None,
        note: str = "",
    ) -> None:
        self.total, self.count, self.note = total, done, note
        self._what = what
        self._stream, self._say = (stream if is_terminal(stream) else None), say
        self._size: float = done
        self._before = done
        self._is_measured = False
        self._started = self._told = time.monotonic()
        self._is_drawn = False

    @property
    def seconds(self) -> float:
        """Time since the work began."""
        return time.monotonic() - self._started

    def add(self, number: int, size: float | None = None) -> None:
        """Count more of them as done. `size` is their part of `total`, where that counts something else."""
        self.count += number
        self._size += number if size is None else size
        self._is_measured |= size is not None
        now = time.monotonic()
        if self._stream:
            if not self._is_drawn or now - self._told >= _BAR_SECONDS:
                self._draw(self._stream, now)
        elif self._say and now - self._told >= _LINE_SECONDS:
            self._told = now
            self._say(self._line(now))

    def close(self, *, erase: bool = False) -> None:
        """Draw the last state and end the line, or leave nothing of it."""
        if self._stream and self._is_drawn and erase:
            self._write(self._stream, "\r\x1b[K")
        elif self._stream and self._is_drawn:
            self._draw(self._stream, time.monotonic(), end="\n")
        self._is_drawn = False

    def _rate(self, now: float) -> float:
        elapsed = now - self._started
        return (self.count - self._before) / elapsed if elapsed > 0 else 0.0

    def _left(self, now: float) -> str | None:
        done = self._size - self._before
        if not self.total or not done:
            return None
        return f"{clock_face((now - self._started) * max(0.0, self.total - self._size) / done)} left"

    def _line(self, now: float) -> str:
        of = f" of {self.total:,}" if self.total is not None and not self._is_measured else ""
        parts = [f"{self.count:,}{of} {self._what}", f"{self._rate(now):,.0f} a second", self._left(now)]
        return ", ".join(filter(None, parts)) + self.note

    def _draw(self, stream: TextIO, now: float, end: str = "") -> None:
        self._told, self._is_drawn = now, True
        parts = [f"{self.count:,} {self._what}", f"{self._rate(now):,.0f}/s"]
        if self.total:
            share = min(1.0, self._size / self.total)
            filled = int(share * _WIDTH)
            parts.append(f"{share:4.0%} [{'#' * filled}{' ' * (_WIDTH - filled)}]")
            parts += filter(None, [self._left(now)])
        self._write(stream, "\r" + "  ".join(parts) + self.note + "\x1b[K" + end)

    @staticmethod
    def _write(stream: TextIO, text: str) -> None:
        with suppress(OSError, ValueError):  # work does not end with its terminal
            stream.write(text)
            stream.flush()


def is_terminal(stream: object) -> bool:
    """Whether the stream is a terminal, with a person at the other end."""
    isatty = getattr(stream, "isatty", None)
    with suppress(ValueError):  # it is closed
        return bool(isatty and isatty())
    return False


def clock_face(seconds: float) -> str:
    """Such as 0:12, or 1:00:12."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
