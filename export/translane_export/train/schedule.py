"""The learning rate over time."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class WarmupInverseSqrt:
    """Linear warm-up to `peak`, then falling with the inverse square root of the step (Vaswani et al. 2017, §5.3).

    With `cooldown_steps`, the last of `total_steps` updates also fall linearly towards zero: the weights settle, which
    the inverse square root alone takes far longer to let them do (Hägele et al. 2024, https://arxiv.org/abs/2405.18392).
    """

    peak: float
    warmup_steps: int
    total_steps: int = 0
    cooldown_steps: int = 0

    def rate(self, step: int) -> float:
        """Return the rate of the `step`-th update, counted from 1."""
        if step < self.warmup_steps:
            rate = self.peak * step / self.warmup_steps
        else:
            rate = self.peak * math.sqrt(max(self.warmup_steps, 1) / step)
        if not self.cooldown_steps:
            return rate
        left = max(self.total_steps - step + 1, 0)
        return rate * min(left / (self.cooldown_steps + 1), 1.0)
