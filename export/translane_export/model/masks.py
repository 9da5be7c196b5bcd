"""Attention masks: boolean, True where a query may look at a key, broadcastable to [B, H, T, S]."""

from __future__ import annotations

import torch
from torch import Tensor


def padding_mask(lengths: Tensor, size: int) -> Tensor:
    """Let every query see the first ``lengths[b]`` keys of its row: [B] -> [B, 1, 1, S] with S = ``size``."""
    key_positions = torch.arange(size, device=lengths.device)
    visible = key_positions[None, :] < lengths[:, None]  # [B, S]
    return visible[:, None, None, :]  # [B, 1, 1, S]


def causal_mask(size: int, device: torch.device | None = None) -> Tensor:
    """Let position t see positions 0..t (paper §3.2.3): [1, 1, T, T] with T = ``size``."""
    positions = torch.arange(size, device=device)
    visible = positions[None, :] <= positions[:, None]  # [T, T]
    return visible[None, None, :, :]  # [1, 1, T, T]


def causal_padding_mask(lengths: Tensor, size: int) -> Tensor:
    """Combine both for the decoder's self-attention: [B] -> [B, 1, T, T] with T = ``size``."""
    return causal_mask(size, lengths.device) & padding_mask(lengths, size)
