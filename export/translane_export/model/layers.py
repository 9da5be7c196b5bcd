"""The layers of both stacks (paper §3.1 to §3.3): attention, then a feed-forward network, each in its residual.

A decoder may have a recurrent unit in place of self-attention.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from translane_export.model.attention import MultiHeadAttention
from translane_export.model.config import Activation, TransformerConfig
from translane_export.model.masks import View
from translane_export.model.norms import Residual

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


class SSRU(nn.Module):
    """The simpler simple recurrent unit: what a decoder layer may have in place of self-attention.

    Kim et al. 2019, "From Research to Production and Back: Ludicrously Fast Neural Machine Translation"
    (https://aclanthology.org/D19-5632); Marian's `dec-cell: ssru`:

        f_t = σ(W_f x_t + b_f)                          the forget gate
        c_t = f_t ⊙ c_{t-1} + (1 - f_t) ⊙ W x_t         the cell, of which c_{-1} = 0
        o_t = ReLU(c_t)

    A step needs one vector of all earlier ones, c_{t-1}, however many there were. W is `cell_proj`, and W_f and b_f are
    `forget_proj`.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.cell_proj = nn.Linear(config.d_model, config.d_model, bias=False)
        self.forget_proj = nn.Linear(config.d_model, config.d_model, bias=config.biases)

    def forward(self, x: Tensor) -> Tensor:
        """Transform ``x`` [B, T, M]: each position depends on those up to it. Cells are float32 or better."""
        exact = torch.promote_types(x.dtype, torch.float32)
        forget = torch.sigmoid(self.forget_proj(x).to(exact))
        cells = run_cells(forget, (1 - forget) * self.cell_proj(x).to(exact))
        return cells.relu().to(x.dtype)


def run_cells(forget: Tensor, added: Tensor) -> Tensor:
    """Return c_t = f_t ⊙ c_{t-1} + a_t of all positions: gates f and terms a, [B, T, M] each -> [B, T, M].

    A position takes in the sums of 1, 2, 4, … positions before it, so that T positions take log₂ T rounds: Hillis and
    Steele 1986, "Data parallel algorithms".
    """
    span = 1
    while span < forget.shape[1]:
        added = torch.cat((added[:, :span], added[:, span:] + forget[:, span:] * added[:, :-span]), dim=1)
        forget = torch.cat((forget[:, :span], forget[:, span:] * forget[:, :-span]), dim=1)
        span *= 2
    return added


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
