"""Rotary positions: queries and keys are turned by angles that grow with their positions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from translane_export.model.positions import check_highest


class Rotary(nn.Module):
    """Turns pairs of numbers of a query or key at position p by the angles p · base^(-2i/D), i = 0 … D/2 - 1.

    Su et al. 2021 (https://arxiv.org/abs/2104.09864), section 3.2. The products of turned queries and keys depend on
    how far apart they are. A pair is numbers i and i + D/2, or neighbours if ``interleaved``, as in the paper.

    `cosines` and `sines` are [max_positions, D/2].
    """

    cosines: Tensor
    sines: Tensor

    def __init__(self, size: int, max_positions: int, base: float, *, interleaved: bool = False) -> None:
        super().__init__()
        self.interleaved = interleaved
        # in float64: far positions lose digits of the angle in float32
        rates = base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)  # [D / 2]
        angles = torch.arange(max_positions, dtype=torch.float64)[:, None] * rates  # [max_positions, D / 2]
        self.register_buffer("cosines", angles.cos().float(), persistent=False)
        self.register_buffer("sines", angles.sin().float(), persistent=False)

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Turn ``x`` [B, H, T, D] at ``positions`` [B, T], or at 0 … T-1: -> [B, H, T, D].

        Raises ValueError if T is past max_positions.
        """
        if positions is None:
            size = x.shape[2]
            check_highest(size - 1, self.cosines.shape[0])
            cosines, sines = self.cosines[:size], self.sines[:size]  # [T, pairs]
        else:
            cosines, sines = self.cosines[positions][:, None], self.sines[positions][:, None]  # [B, 1, T, pairs]
        pairs = cosines.shape[-1]
        if self.interleaved:
            first, second = x[..., 0 : 2 * pairs : 2], x[..., 1 : 2 * pairs : 2]
        else:
            first, second = x[..., :pairs], x[..., pairs : 2 * pairs]
        turned = (first * cosines - second * sines, first * sines + second * cosines)
        if self.interleaved:
            return torch.stack(turned, dim=-1).flatten(-2).to(x.dtype)
        return torch.cat((*turned, x[..., 2 * pairs :]), dim=-1).to(x.dtype)
