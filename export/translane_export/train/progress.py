"""The progress bar: loss, target tokens per second, time left."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

from tqdm import tqdm


@dataclass(frozen=True)
class Limits:
    """When a run ends at the latest; 0 is no limit. `steps` counts all updates, epochs already turned into steps."""

    steps: int
    seconds: float


class Progress:
    """A bar over the run's updates; in a log file instead of a terminal, a line every half minute."""

    def __init__(self, limits: Limits, done_steps: int, done_seconds: float) -> None:
        interactive = sys.stderr.isatty()
        self._limits = limits
        self._steps = done_steps
        self._first_step = done_steps
        self._done_seconds = done_seconds
        self._started = time.monotonic()
        self._window_started, self._window_tokens, self._window_loss = self._started, 0, 0.0
        self._bar = tqdm(
            total=limits.steps or None,
            initial=done_steps,
            unit="step",
            mininterval=0.5 if interactive else 30,
            dynamic_ncols=interactive,
            bar_format="step {n_fmt}/{total_fmt} [{elapsed}, {rate_fmt}]{postfix}",
        )

    def update(self, loss_sum: float, tokens: int) -> None:
        """Count one update whose loss over `tokens` target tokens adds up to `loss_sum`."""
        self._steps += 1
        self._window_loss += loss_sum
        self._window_tokens += tokens
        now = time.monotonic()
        if now - self._window_started >= self._bar.mininterval:
            rate = self._window_tokens / (now - self._window_started)
            loss = self._window_loss / self._window_tokens
            text = f"loss {loss:.3f}, {rate:,.0f} tokens/s, {self._left(now)} left"
            self._bar.set_postfix_str(text, refresh=False)
            self._window_started, self._window_tokens, self._window_loss = now, 0, 0.0
        self._bar.update()

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._bar.write(text, file=sys.stderr)
        sys.stderr.flush()

    def close(self) -> None:
        """Leave the last state of the bar on the screen."""
        self._bar.close()

    def _left(self, now: float) -> str:
        spent = now - self._started
        estimates = []
        if self._limits.seconds:
            estimates.append(self._limits.seconds - self._done_seconds - spent)
        if self._limits.steps:
            estimates.append((self._limits.steps - self._steps) * spent / max(self._steps - self._first_step, 1))
        return tqdm.format_interval(max(min(estimates), 0)) if estimates else "?"
