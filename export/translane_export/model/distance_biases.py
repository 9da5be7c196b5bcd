"""Biases of self-attention's scores that follow from the distance of query and key, without trained numbers."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor, nn


class DistanceBias(Protocol):
    """What a score is raised by, by the positions of its query and its key."""

    def between(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the bias from positions [..., T, 1] to positions [..., S]: -> [..., H or 1, T, S]."""
        ...


class Alibi(nn.Module):
    """-m_h · |i - j|, with a slope m_h for each head (Press et al. 2022, https://arxiv.org/abs/2108.12409, section 3).

    The paper's decoder looks back alone. An encoder looks both ways, and falls off alike on either side.
    """

    slopes: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.tensor(alibi_slopes(heads)), persistent=False)  # [H]

    def between(self, queries: Tensor, keys: Tensor) -> Tensor:
        """See `DistanceBias`."""
        distances = (queries - keys).abs().unsqueeze(-3)  # [..., 1, T, S]
        return -self.slopes[:, None, None] * distances.to(self.slopes.dtype)


class ProximalBias(nn.Module):
    """-log(1 + |i - j|): near keys first, as the encoder of Glow-TTS has it (https://arxiv.org/abs/2005.11129)."""

    unit: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("unit", torch.ones(()), persistent=False)  # has the type that the model computes in

    def between(self, queries: Tensor, keys: Tensor) -> Tensor:
        """See `DistanceBias`."""
        distances = (queries - keys).abs().unsqueeze(-3)  # [..., 1, T, S]
        return -torch.log(self.unit + distances.to(self.unit.dtype))


def alibi_slopes(heads: int) -> list[float]:
    """Return the slope of each head: a geometric sequence that ends with 2^-8.

    For n heads, where n is a power of two, they are 2^(-8/n), 2^(-16/n), … Otherwise they are those of the next lower
    power of two, and then every other one of the next higher power's, as the authors' code has it.
    """
    lower = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (place + 1) / lower) for place in range(lower)]
    return slopes + [2 ** (-4 * (place + 1) / lower) for place in range(0, 2 * (heads - lower), 2)]
