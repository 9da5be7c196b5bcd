"""How far a run is: loss, target tokens per second, time left."""

from __future__ import annotations

import sys
import time

from tqdm import tqdm

_TERMINAL_SECONDS = 0.5
_LOG_SECONDS = 30.0


class Progress:
    """A bar over the run's updates; where the output is no terminal, a line every half minute."""

    def __init__(self, *, max_steps: int, max_seconds: float, done_steps: int, done_seconds: float) -> None:
        """Start at `done_steps` of `max_steps` updates and `done_seconds` of `max_seconds`; 0 is no limit."""
        self._interactive = sys.stderr.isatty()
        self._max_steps, self._max_seconds = max_steps, max_seconds
        self._first_step, self._first_seconds = done_steps, done_seconds
        self._steps = done_steps
        self._started = self._window_started = time.monotonic()
        self._window_loss, self._window_tokens = 0.0, 0
        self._bar = tqdm(
            total=max_steps or None, initial=done_steps, unit="step", dynamic_ncols=True, disable=not self._interactive
        )

    def expect(self, steps: int) -> None:
        """Say after how many updates the epochs asked for will be over."""
        self._max_steps = min(self._max_steps, steps) if self._max_steps else steps
        self._bar.total = self._max_steps

    def update(self, loss: float, tokens: int) -> None:
        """Count one update of mean `loss` [nats] over `tokens` target tokens."""
        self._steps += 1
        self._window_loss += loss * tokens
        self._window_tokens += tokens
        now = time.monotonic()
        if now - self._window_started >= (_TERMINAL_SECONDS if self._interactive else _LOG_SECONDS):
            self._show(now)
            self._window_started, self._window_loss, self._window_tokens = now, 0.0, 0
        self._bar.update()

    def say(self, text: str) -> None:
        """Print a line, above the bar where there is one."""
        tqdm.write(text, file=sys.stderr)
        sys.stderr.flush()

    def close(self) -> None:
        """Leave the last state of the bar on the screen."""
        self._bar.close()

    def _show(self, now: float) -> None:
        loss = self._window_loss / self._window_tokens
        rate = self._window_tokens / (now - self._window_started)
        text = f"loss {loss:.3f}, {rate:,.0f} tokens/s, {self._left(now - self._started)} left"
        if self._interactive:
            self._bar.set_postfix_str(text, refresh=False)
        else:
            self.say(f"step {self._steps:,}: {text}")

    def _left(self, spent: float) -> str:
        estimates = []
        if self._max_seconds:
            estimates.append(self._max_seconds - self._first_seconds - spent)
        if self._max_steps:
            estimates.append((self._max_steps - self._steps) * spent / (self._steps - self._first_step))
        return tqdm.format_interval(max(min(estimates), 0)) if estimates else "unknown time"
