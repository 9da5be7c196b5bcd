"""The position-wise feed-forward network (paper §3.3)."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from translane_export.model.config import Activation

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


class FeedForward(nn.Module):
    """activation(x W₁ + b₁) W₂ + b₂ at every position alike: [B, T, M] -> [B, T, M]."""

    def __init__(self, d_model: int, ffn_size: int, activation: Activation, dropout: float = 0.0) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.up_proj = nn.Linear(d_model, ffn_size)
        self.dropout = nn.Dropout(dropout)
        self.down_proj = nn.Linear(ffn_size, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Transform ``x`` [B, T, M]; the hidden layer is [B, T, ffn_size]."""
        hidden = self.dropout(self.activation(self.up_proj(x)))
        output: Tensor = self.down_proj(hidden)
        return output
