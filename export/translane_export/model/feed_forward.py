"""The position-wise feed-forward network (paper §3.3)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from translane_export.model.config import Activation, TransformerConfig

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


Projection = Callable[[nn.Linear, Tensor], Tensor]


class FeedForward(nn.Module):
    """activation(x W₁ + b₁) W₂ + b₂ at every position alike: [B, T, M] -> [B, T, M].

    A gated one is (activation(x W_gate + b_gate) * (x W₁ + b₁)) W₂ + b₂.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.gate_proj = nn.Linear(config.d_model, config.ffn_size, bias=config.biases) if config.gated else None
        self.up_proj = nn.Linear(config.d_model, config.ffn_size, bias=config.biases)
        self.dropout = nn.Dropout(config.activation_dropout)
        self.down_proj = nn.Linear(config.ffn_size, config.d_model, bias=config.biases)

    def forward(self, x: Tensor, project: Projection = nn.Linear.__call__) -> Tensor:
        """Transform ``x`` [B, T, M]; the hidden layer is [B, T, ffn_size].

        ``project`` is how a projection is applied: a graph has ways of its own.
        """
        if self.gate_proj is None:
            hidden = self.activation(project(self.up_proj, x))
        else:
            hidden = self.activation(project(self.gate_proj, x)) * project(self.up_proj, x)
        return project(self.down_proj, self.dropout(hidden))
