"""The layers of both stacks (paper §3.1 to §3.3): attention, then a feed-forward network, each in its residual.

A decoder may have a recurrent unit in place of self-attention.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from translane_export.model.attention import MultiHeadAttention
from translane_export.model.config import Activation, TransformerConfig
from translane_export.model.masks import View
from translane_export.model.norms import Residual
from translane_export.model.ssru import SSRU

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


class FeedForward(nn.Module):
    """The position-wise network (§3.3): activation(x W₁ + b₁) W₂ + b₂, and activation is max(0, x) in the paper.

    A gated one is (activation(x W_gate + b_gate) * (x W₁ + b₁)) W₂ + b₂ (Shazeer 2020,
    https://arxiv.org/abs/2002.05202).
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.gate_proj = nn.Linear(config.d_model, config.ffn_size, bias=config.biases) if config.gated else None
        self.up_proj = nn.Linear(config.d_model, config.ffn_size, bias=config.biases)
        self.dropout = nn.Dropout(config.activation_dropout)
        self.down_proj = nn.Linear(config.ffn_size, config.d_model, bias=config.biases)

    def forward(self, x: Tensor) -> Tensor:
        """Transform ``x`` [B, T, M]; the hidden layer is [B, T, ffn_size]."""
        if self.gate_proj is None:
            hidden = self.activation(self.up_proj(x))
        else:
            hidden = self.activation(self.gate_proj(x)) * self.up_proj(x)
        output: Tensor = self.down_proj(self.dropout(hidden))
        return output


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each in its residual."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention.from_config(config, to_self=True)
        self.self_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, x: Tensor, view: View, real: Tensor | None = None) -> Tensor:
        """Transform ``x`` [B, S, M], whose positions see what ``view`` says; ``real`` [B, S] is False for padding."""
        x = self.self_attention_residual(x, lambda y: self.self_attention(y, y, view), real)
        output: Tensor = self.feed_forward_residual(x, self.feed_forward, real)
        return output


class DecoderLayer(nn.Module):
    """Self-attention over the target so far, cross-attention over the source, feed-forward, each in its residual.

    A layer with an `ssru` has no `self_attention`.
    """

    self_attention: MultiHeadAttention
    self_attention_residual: Residual

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        if config.decoder_unit == "ssru":
            self.ssru: SSRU | None = SSRU(config)
            self.ssru_residual = Residual(config)
        else:
            self.ssru = None
            self.self_attention = MultiHeadAttention.from_config(config, to_self=True)
            self.self_attention_residual = Residual(config)
        self.cross_attention = MultiHeadAttention.from_config(config, to_self=False)
        self.cross_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(
        self, x: Tensor, memory: Tensor, self_view: View, cross_view: View, real: Tensor | None = None
    ) -> Tensor:
        """Transform ``x`` [B, T, M] with ``memory`` [B, S, M].

        The views say what the T positions see of one another, and of the S positions of the source. ``real`` [B, T] is
        False for padding.
        """
        if self.ssru is None:
            x = self.self_attention_residual(x, lambda y: self.self_attention(y, y, self_view), real)
        else:
            x = self.ssru_residual(x, self.ssru, real)
        x = self.cross_attention_residual(x, lambda y: self.cross_attention(y, memory, cross_view), real)
        output: Tensor = self.feed_forward_residual(x, self.feed_forward, real)
        return output
