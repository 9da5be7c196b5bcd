"""When to try again, and after how long."""

from __future__ import annotations

from dataclasses import dataclass

from translane_client.errors import QueueFull, TranslaneError, Unavailable

_LONGEST_PAUSE = 86_400.0
"""Seconds; whatever the server asks for, a later attempt is told again, and no way of sleeping overflows."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential back-off with full jitter.

    The pause after the n-th attempt is drawn evenly from 0 to min(maximum, initial · multiplierⁿ⁻¹) seconds, which
    spreads clients best (Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015). Where the server
    says how long to wait, that much is added. A pause that would not end before the deadline is not begun.
    """

    attempts: int = 8
    """Attempts in all; 1 means no retry. The pauses of the default reach 11.3 s in all: a server may restart."""
    initial: float = 0.1
    """Longest pause after the first attempt, in seconds."""
    maximum: float = 5.0
    """Longest pause, in seconds, that the client adds by itself."""
    multiplier: float = 2.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts must be at least 1, not {self.attempts}")
        if not 0 <= self.initial <= self.maximum:
            raise ValueError(f"0 <= initial <= maximum is needed, not {self.initial} and {self.maximum}")
        if not self.multiplier >= 1:
            raise ValueError(f"multiplier must be at least 1, not {self.multiplier}")

    def retries(self, error: TranslaneError, attempt: int) -> bool:
        """Whether a call is tried again whose `attempt`-th attempt (from 1) failed with `error`.

        Translating has no side effects, so trying again is always safe; it makes sense where the state of the server
        will change by itself: it is away, or its queue is full.
        """
        return attempt < self.attempts and isinstance(error, Unavailable | QueueFull)

    def pause(self, error: TranslaneError, attempt: int, jitter: float) -> float:
        """Seconds to wait after the `attempt`-th attempt; `jitter` is a random number from 0 to 1."""
        try:
            longest = min(self.maximum, _LONGEST_PAUSE, self.initial * self.multiplier ** (attempt - 1))
        except OverflowError:
            longest = min(self.maximum, _LONGEST_PAUSE)
        return min(error.retry_after or 0.0, _LONGEST_PAUSE) + jitter * longest
