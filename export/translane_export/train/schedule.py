"""The learning rate over time."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class WarmupInverseSqrt:
    """Linear warm-up to `peak`, then falling with the inverse square root of the step (Vaswani et al. 2017, §5.3)."""

    peak: float
    warmup_steps: int

    def rate(self, step: int) -> float:
        """Return the rate of the `step`-th update, counted from 1."""
        if step < self.warmup_steps:
            return self.peak * step / self.warmup_steps
        return self.peak * math.sqrt(max(self.warmup_steps, 1) / step)
