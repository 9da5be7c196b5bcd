"""The encoder stack (paper §3.1)."""

from __future__ import annotations

from torch import Tensor, nn

from translane_export.model.attention import MultiHeadAttention
from translane_export.model.config import TransformerConfig
from translane_export.model.embeddings import Embedding
from translane_export.model.feed_forward import FeedForward
from translane_export.model.masks import padding_mask
from translane_export.model.relative_positions import RelativePositions
from translane_export.model.residual import Residual, final_norm


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each in its residual."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention.from_config(config)
        self.self_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, x: Tensor, mask: Tensor, bias: Tensor | None = None) -> Tensor:
        """Transform ``x`` [B, S, M]; ``mask`` and ``bias`` are broadcastable to [B, H, S, S]."""
        x = self.self_attention_residual(x, lambda y: self.self_attention(y, y, mask, bias))
        output: Tensor = self.feed_forward_residual(x, self.feed_forward)
        return output


class Encoder(nn.Module):
    """Source embedding, N layers and, for pre-norm, a final norm; the layers share their relative positions."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.embedding = Embedding(config, config.source_vocab_size)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.final_norm = final_norm(config)
        self.relative_positions = RelativePositions(config, both_ways=True) if config.relative_buckets else None

    def forward(self, source_ids: Tensor, source_lengths: Tensor) -> Tensor:
        """Encode ``source_ids`` [B, S], padded on the right after ``source_lengths`` [B]: -> memory [B, S, M]."""
        mask = padding_mask(source_lengths, source_ids.shape[1])  # [B, 1, 1, S]
        x: Tensor = self.embedding(source_ids)
        relative = self.relative_positions
        bias = None if relative is None else relative(source_ids.shape[1])  # [1, H, S, S]
        for layer in self.layers:
            x = layer(x, mask, bias)
        output: Tensor = self.final_norm(x)
        return output
