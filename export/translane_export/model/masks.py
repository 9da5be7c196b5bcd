"""Attention masks: boolean, True where a query may look at a key.

A padding mask follows from the lengths of sentences. A rule says which keys a query may see by their positions alone.
`translane_export.model.views` combines both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


def padding_mask(lengths: Tensor, size: int) -> Tensor:
    """Let every query see the first ``lengths[b]`` keys of its row: [B] -> [B, 1, 1, S] with S = ``size``."""
    key_positions = torch.arange(size, device=lengths.device)
    visible = key_positions[None, :] < lengths[:, None]  # [B, S]
    return visible[:, None, None, :]  # [B, 1, 1, S]


class MaskRule(Protocol):
    """Which keys a query may see, whatever the sentence."""

    def sees(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return whether queries at positions [..., T, 1] see keys at positions [..., S]: -> boolean [..., T, S]."""
        ...


@dataclass(frozen=True)
class CausalRule:
    """A query sees its own position and those before it (paper §3.2.3)."""

    def sees(self, queries: Tensor, keys: Tensor) -> Tensor:
        """See `MaskRule`."""
        return keys <= queries


@dataclass(frozen=True)
class BlockRule:
    """A query sees ``block_length`` positions on either side of its own: |i - j| ≤ block_length.

    The block-local attention of Glow-TTS's encoder (Kim et al. 2020, https://arxiv.org/abs/2005.11129).
    """

    block_length: int

    def sees(self, queries: Tensor, keys: Tensor) -> Tensor:
        """See `MaskRule`."""
        return (queries - keys).abs() <= self.block_length


@dataclass(frozen=True)
class WindowRule:
    """Windowed local attention, with the meaning of the package `local-attention` 1.x.

    Positions are cut into windows of ``window_size``. A query in window n sees the windows from n - look_backward to
    n + look_forward. If ``exact``, it sees no further than look_backward · window_size positions back, nor further
    than look_forward · window_size positions ahead. https://pypi.org/project/local-attention/
    """

    window_size: int
    look_backward: int
    look_forward: int
    exact: bool

    def sees(self, queries: Tensor, keys: Tensor) -> Tensor:
        """See `MaskRule`."""
        size = self.window_size
        windows = torch.div(keys, size, rounding_mode="floor") - torch.div(queries, size, rounding_mode="floor")
        seen = torch.logical_and(windows >= -self.look_backward, windows <= self.look_forward)
        if self.exact:
            ahead = keys - queries
            near = torch.logical_and(ahead >= -self.look_backward * size, ahead <= self.look_forward * size)
            seen = torch.logical_and(seen, near)
        return seen
