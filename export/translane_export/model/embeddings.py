"""Token embeddings with their positions (paper §3.4, §3.5)."""

from __future__ import annotations

import math

from torch import Tensor, nn

from translane_export.model.config import TransformerConfig
from translane_export.model.norms import apply_norm, build_norm
from translane_export.model.positions import build_positions


class Embedding(nn.Module):
    """Token vector, times √M when the config scales embeddings, plus position vector, then dropout (§5.4).

    A config may leave positions out, and have the sum normalised.
    """

    def __init__(self, config: TransformerConfig, vocab_size: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, config.d_model, padding_idx=config.pad_id)
        self.positions = build_positions(config)
        self.scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
        self.norm = build_norm(config) if config.embedding_norm else None
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids: Tensor, positions: Tensor | None = None, *, real: Tensor | None = None) -> Tensor:
        """Embed ``ids`` [B, T] at ``positions`` [B, T], or at 0..T-1 when not given: -> [B, T, M].

        Explicit positions serve a decoder step whose rows are at different lengths. ``real`` [B, T] is False for
        padding.
        Raises ValueError for a position past the config's max_positions.
        """
        x = self.tokens(ids) * self.scale
        if self.positions is not None and positions is None:
            x = x + self.positions.first(ids.shape[1], ids.device)  # [T, M]
        elif self.positions is not None:
            x = x + self.positions(positions)  # [B, T, M]
        if self.norm is not None:
            x = apply_norm(self.norm, x, real)
        output: Tensor = self.dropout(x)
        return output
