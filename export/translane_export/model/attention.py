"""Attention (paper §3.2), and the variants that a config composes it of.

    Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V                                     (equation 1)
    MultiHead(Q, K, V) = Concat(head_1, …, head_H) W_O                              (§3.2.2)
                         with head_h = Attention(Q W_Q_h, K W_K_h, V W_V_h)

`ScaledDotProduct` is the first line, `MultiHeadAttention` the second. Which keys a query sees is a matter of
`translane_export.model.masks`, and where it stands one of `translane_export.model.positions`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from translane_export.model.config import TransformerConfig
from translane_export.model.fast_attention import attend, for_each_head
from translane_export.model.masks import Seen, View
from translane_export.model.positions import RelativeVectors, Rotary, build_relative, build_rotary


@dataclass(frozen=True)
class ScaledDotProduct:
    """Scaled dot-product attention: normalise(scale · (QKᵀ + Q·r_k) + bias) (V + r_v).

    Without ``relative`` there are no r_k and r_v, and without a bias, at 1/√d_k and by softmax, it is equation 1.
    H heads of queries may share fewer heads of keys and values.
    """

    scale: float
    one_in_denominator: bool = False
    relative: RelativeVectors | None = None

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, seen: Seen, dropout: float = 0.0) -> Tensor:
        """Attend from queries [B, H, T, d_k] over keys [B, G, S, d_k] and values [B, G, S, d_v]: -> [B, H, T, d_v].

        ``dropout`` is the probability with which a weight is dropped.
        """
        weights = F.dropout(self.weights(queries, keys, seen), dropout)
        return self.context(weights, values, seen)

    def weights(self, queries: Tensor, keys: Tensor, seen: Seen) -> Tensor:
        """Return the attention weights, [B, H, T, S]."""
        return normalize_scores(self.scores(queries, keys, seen), seen.mask, one_in_denominator=self.one_in_denominator)

    def scores(self, queries: Tensor, keys: Tensor, seen: Seen) -> Tensor:
        """Return the scores before they are masked and normalised, [B, H, T, S]."""
        scores = queries @ for_each_head(keys, queries.shape[1] // keys.shape[1]).transpose(-2, -1)
        if self.relative is not None:
            places = self.relative.places(seen.query_positions, seen.key_positions)
            scores = scores + self.relative.raise_scores(queries, places)
        if self.scale != 1:
            scores = scores * self.scale
        return scores if seen.bias is None else scores + seen.bias

    def context(self, weights: Tensor, values: Tensor, seen: Seen) -> Tensor:
        """Return what weights [B, H, T, S] make of values [B, G, S, d_v]: [B, H, T, d_v]."""
        context = weights @ for_each_head(values, weights.shape[1] // values.shape[1])
        if self.relative is not None:
            places = self.relative.places(seen.query_positions, seen.key_positions)
            context = context + self.relative.mix(weights, places)
        return context


def normalize_scores(scores: Tensor, mask: Tensor | None = None, *, one_in_denominator: bool = False) -> Tensor:
    """Turn scores [..., T, S] into attention weights of the same shape.

    They are normalised by softmax, or by `softmax1` with ``one_in_denominator``. ``mask`` is boolean and broadcastable
    to the scores, True where a query may look. A query that may look nowhere gets zeros.
    """
    # The lowest finite number instead of -inf keeps a fully masked row free of NaN, forwards and backwards.
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = softmax1(scores) if one_in_denominator else torch.softmax(scores, dim=-1)
    return weights if mask is None else weights.masked_fill(~mask, 0.0)


def softmax1(scores: Tensor) -> Tensor:
    """softmax₁(x)_i = exp(x_i) / (1 + Σ_j exp(x_j)), over the last axis: a query may attend to nothing.

    E. Miller 2023, https://www.evanmiller.org/attention-is-off-by-one.html.
    """
    return torch.softmax(F.pad(scores, (0, 1)), dim=-1)[..., :-1]  # one more key, whose score is 0: exp(0) is the 1


class KeysValues(NamedTuple):
    """What attention looks at, already projected and split into heads: [B, G, S, d_k] and [B, G, S, d_v]."""

    keys: Tensor
    values: Tensor


class MultiHeadAttention(nn.Module):
    """H attentions side by side, each on its own projection of the input (paper §3.2.2).

    Every size is free of the others: d_k (`head_size`), d_v (`value_size`), the size of the output (`out_size`), and G
    heads of keys and values (`kv_heads`), each of which H / G heads of queries share (Ainslie et al. 2023,
    https://arxiv.org/abs/2305.13245). The projections are separate from the attention itself, so that an incremental
    decoder can project one position and attend over keys and values it has kept.

    By default, d_v is d_k, G is H, outputs have the size of inputs, and scores are multiplied by 1/√d_k. Relative
    vectors and rotary positions are for self-attention.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        head_size: int,
        dropout: float = 0.0,
        *,
        value_size: int | None = None,
        kv_heads: int | None = None,
        out_size: int | None = None,
        biases: bool = True,
        scale: float | None = None,
        one_in_denominator: bool = False,
        relative: RelativeVectors | None = None,
        rotary: Rotary | None = None,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.kv_heads = kv_heads or heads
        self.head_size = head_size
        self.value_size = value_size or head_size
        self.dropout = dropout
        self.scale = head_size**-0.5 if scale is None else scale
        self.one_in_denominator = one_in_denominator
        self.q_proj = nn.Linear(d_model, heads * head_size, bias=biases)
        self.k_proj = nn.Linear(d_model, self.kv_heads * head_size, bias=biases)
        self.v_proj = nn.Linear(d_model, self.kv_heads * self.value_size, bias=biases)
        self.out_proj = nn.Linear(heads * self.value_size, out_size or d_model, bias=biases)
        self.relative = relative
        self.rotary = rotary

    @classmethod
    def from_config(cls, config: TransformerConfig, *, to_self: bool) -> MultiHeadAttention:
        """Build an attention of a layer. Positions of the other side mean nothing to cross-attention."""
        return cls(
            config.d_model,
            config.heads,
            config.head_dim,
            config.attention_dropout,
            value_size=config.value_dim,
            kv_heads=config.key_value_heads,
            biases=config.has_attention_biases,
            scale=config.score_scale,
            one_in_denominator=config.attention_normalizer == "softmax1",
            relative=build_relative(config) if to_self else None,
            rotary=build_rotary(config) if to_self else None,
        )

    @property
    def formula(self) -> ScaledDotProduct:
        """How scores become a context."""
        return ScaledDotProduct(self.scale, self.one_in_denominator, self.relative)

    def forward(self, x: Tensor, memory: Tensor, view: View) -> Tensor:
        """Let each position of ``x`` [B, T, M] look at ``memory`` [B, S, M]; self-attention passes x twice.

        ``view`` says what the T queries see of the S keys. Returns [B, T, M].
        """
        return self.attend(self.project_queries(x), self.project_keys_values(memory), view)

    def project_queries(self, x: Tensor) -> Tensor:
        """Project positions 0 … T-1: [B, T, M] -> [B, H, T, d_k]."""
        return self._turned(_split_heads(self.q_proj(x), self.heads))

    def project_keys_values(self, memory: Tensor) -> KeysValues:
        """Project positions 0 … S-1: [B, S, M] -> keys and values."""
        keys = self._turned(_split_heads(self.k_proj(memory), self.kv_heads))
        return KeysValues(keys, _split_heads(self.v_proj(memory), self.kv_heads))

    def attend(self, queries: Tensor, keys_values: KeysValues, view: View) -> Tensor:
        """Attend with queries [B, H, T, d_k] over keys and values, and project back to [B, T, M]."""
        dropout = self.dropout if self.training else 0.0
        context = attend(self.formula, queries, *keys_values, view, dropout)
        output: Tensor = self.out_proj(context.transpose(1, 2).flatten(2))  # [B, H, T, d_v] -> [B, T, M]
        return output

    def weights(self, x: Tensor, memory: Tensor, view: View) -> Tensor:
        """Return the attention weights [B, H, T, S] of `forward`'s arguments, before dropout."""
        keys = self.project_keys_values(memory).keys
        return self.formula.weights(self.project_queries(x), keys, view.whole)

    def _turned(self, x: Tensor) -> Tensor:
        return x if self.rotary is None else self.rotary(x)


def _split_heads(x: Tensor, heads: int) -> Tensor:
    rows, size, _ = x.shape
    return x.reshape(rows, size, heads, -1).transpose(1, 2)  # [B, T, H * D] -> [B, H, T, D]
