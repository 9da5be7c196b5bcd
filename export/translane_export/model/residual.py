"""The residual connection and norm around every sublayer."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from translane_export.model.config import TransformerConfig
from translane_export.model.norms import apply_norm, build_norm


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

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], real: Tensor | None = None) -> Tensor:
        """Apply ``sublayer`` to ``x`` [B, T, M] and add ``x`` back. Dropout falls on the sublayer's output (§5.4).

        ``real`` [B, T] is True where a position is no padding; None means everywhere.
        """
        output: Tensor
        if self.placement == "pre":
            output = x + self.dropout(sublayer(apply_norm(self.norm, x, real)))
        else:
            output = apply_norm(self.norm, x + self.dropout(sublayer(x)), real)
        return output
