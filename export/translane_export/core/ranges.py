"""Between which numbers the activations of an int8 model lie: what calibration measures and quantization takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LEVELS = 255
"""The largest unit of an activation."""


@dataclass(frozen=True)
class Range:
    """Between which numbers a projection's inputs lie; what lies outside is taken for the nearest of the two."""

    low: float
    high: float

    @classmethod
    def of_units(cls, scale: float, zero_point: int) -> Range:
        """Return the range with this scale and this zero point."""
        return cls(-zero_point * scale, (LEVELS - zero_point) * scale)

    @property
    def scale(self) -> np.float32:
        """What a unit stands for."""
        return np.float32(max(self.high - self.low, 1e-12) / LEVELS)

    @property
    def zero_point(self) -> np.uint8:
        """What stands for zero, which is exact."""
        return np.uint8(np.clip(np.round(-self.low / self.scale), 0, LEVELS))


@dataclass(frozen=True)
class FixedUnits:
    """The int8 of a projection as its checkpoint has it, which is taken as it is.

    Attributes:
        of_input: what a unit of an activation stands for; there are 127 on each side. 0 where a weight is only looked
            up in.
        of_weight: what a unit of the weight stands for, in equal parts of its outputs.
    """

    of_input: float
    of_weight: tuple[float, ...]


Limits = Range | FixedUnits


@dataclass(frozen=True)
class Ranges:
    """Between which numbers an int8 bundle's activations lie.

    Of either graph, weights by their names to the ranges of what they are multiplied with, or to their own units; and
    keys and values of cross-attention, by their names, to what a unit of them stands for.
    """

    encoder: dict[str, Limits]
    decoder: dict[str, Limits]
    keys_values: dict[str, np.float32]
