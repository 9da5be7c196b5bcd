"""The residual connection and norm around every sublayer."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from translane_export.model.config import TransformerConfig

Norm = nn.LayerNorm | nn.RMSNorm


def build_norm(config: TransformerConfig) -> Norm:
    """Build a norm of the config's kind."""
    kind = nn.RMSNorm if config.norm_kind == "rms" else nn.LayerNorm
    return kind(config.d_model, eps=config.layer_norm_eps)


class Residual(nn.Module):
    """Wraps a sublayer: post-norm as in the paper (§3.1), or pre-norm (https://arxiv.org/abs/2002.04745).

    The sublayer is passed to each call rather than owned, so that another arrangement of the same weights, such
    as an incremental decoder step, goes through the same norm and residual.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.placement = config.norm
        self.norm = build_norm(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply ``sublayer`` to ``x`` [B, T, M] and add ``x`` back. Dropout falls on the sublayer's output (§5.4)."""
        output: Tensor
        if self.placement == "pre":
            output = x + self.dropout(sublayer(self.norm(x)))
        else:
            output = self.norm(x + self.dropout(sublayer(x)))
        return output


def final_norm(config: TransformerConfig) -> nn.Module:
    """Return the norm after a whole stack: pre-norm leaves its last residual unnormalised, post-norm does not."""
    if config.norm == "pre":
        return build_norm(config)
    return nn.Identity()
