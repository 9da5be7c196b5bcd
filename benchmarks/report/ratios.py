"""Ratios of the two engines, which all tables write alike: above 1 Translane is faster or takes less."""

from __future__ import annotations

import math

LOST = 0.995  # ratios below are less than 1 to two decimals


def over(more: float, less: float) -> float:
    """A quotient; infinite where only the divisor is 0, and 1 where both are 0 or both are infinite times."""
    if math.isinf(less):
        return 1.0 if math.isinf(more) else 0.0
    return more / less if less else math.inf if more else 1.0


def told(value: float | None) -> str:
    """A ratio with two decimals, bold where it is lost."""
    if value is None:
        return "–"
    text = "∞" if math.isinf(value) else f"{value:.2f}"
    return f"**{text}**" if value < LOST else text
