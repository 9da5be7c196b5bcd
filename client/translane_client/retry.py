"""When to try again, and after how long."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from translane.errors import TranslaneError

ATTEMPTS = logging.getLogger("translane.attempts")
"""Has a line (INFO) for each attempt that failed and is followed by another one: why it failed. At DEBUG it has the
address when an attempt begins, and `ANSWERED` when its answer begins."""
ANSWERED = "answered"

_LONGEST_PAUSE = 86_400.0
"""Seconds; a longer pause could overflow a sleep, and the next attempt learns again how long to wait."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential back-off with full jitter.

    The pause after the n-th attempt is drawn evenly from 0 to min(maximum, initial · multiplierⁿ⁻¹) seconds. This
    spreads clients best (Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015). The time that the
    server asks to wait is added. A pause that would not end before the deadline is not begun.
    """

    attempts: int = 8
    """Attempts in all; 1 means no retry. The default's pauses are some 6 s in all, and 11.3 s at most."""
    initial: float = 0.1
    """Longest pause after the first attempt, in seconds."""
    maximum: float = 5.0
    """Longest pause in seconds, without the time that the server asks to wait."""
    multiplier: float = 2.0
    """Factor by which the longest pause grows with each attempt."""
    longest_wait: float = 60.0
    """Longest time in seconds that the server may ask to wait; where it asks for more, the error is raised at once."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts must be at least 1, not {self.attempts}")
        if not 0 <= self.initial <= self.maximum:
            raise ValueError(f"0 <= initial <= maximum is needed, not {self.initial} and {self.maximum}")
        if not self.multiplier >= 1:
            raise ValueError(f"multiplier must be at least 1, not {self.multiplier}")
        if not self.longest_wait >= 0:
            raise ValueError(f"longest_wait must not be negative, not {self.longest_wait}")

    def retries(self, error: TranslaneError, attempt: int) -> bool:
        """Whether another attempt follows after attempt number `attempt` (from 1) failed with `error`.

        A retry is always safe, because translating has no side effects. It makes sense where the server's state changes
        by itself: the server is away, or the server's queue is full.
        """
        from translane.errors import QueueFull, Unavailable  # late: they need gRPC, which a command's help does without

        return attempt < self.attempts and isinstance(error, Unavailable | QueueFull)

    def pause(self, error: TranslaneError, attempt: int, jitter: float) -> float:
        """Seconds to wait after attempt number `attempt` (from 1); `jitter` is a random number from 0 to 1."""
        try:
            longest = min(self.maximum, _LONGEST_PAUSE, self.initial * self.multiplier ** (attempt - 1))
        except OverflowError:
            longest = min(self.maximum, _LONGEST_PAUSE)
        return min(error.retry_after or 0.0, _LONGEST_PAUSE) + jitter * longest
