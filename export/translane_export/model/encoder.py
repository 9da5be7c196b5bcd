"""The encoder stack (paper §3.1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from translane_export.model.attention import MultiHeadAttention
from translane_export.model.config import TransformerConfig
from translane_export.model.feed_forward import FeedForward
from translane_export.model.norms import apply_norm
from translane_export.model.residual import Residual
from translane_export.model.stack import Stack
from translane_export.model.views import View


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each in its residual."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention.for_self(config)
        self.self_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, x: Tensor, view: View, real: Tensor | None = None) -> Tensor:
        """Transform ``x`` [B, S, M], whose positions see what ``view`` says; ``real`` [B, S] is False for padding."""
        x = self.self_attention_residual(x, lambda y: self.self_attention(y, y, view), real)
        output: Tensor = self.feed_forward_residual(x, self.feed_forward, real)
        return output


class Encoder(Stack):
    """Source embedding, N layers and, for pre-norm, a final norm."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config, config.source_vocab_size, config.encoder_layers, EncoderLayer, causal=False)

    def forward(self, source_ids: Tensor, source_lengths: Tensor) -> Tensor:
        """Encode ``source_ids`` [B, S], padded on the right after ``source_lengths`` [B]: -> memory [B, S, M]."""
        size = source_ids.shape[1]
        view = self.view(size, source_lengths, source_ids.device)
        real = torch.arange(size, device=source_ids.device) < source_lengths[:, None]  # [B, S]
        x: Tensor = self.embedding(source_ids, real=real)
        for layer in self.layers:
            x = layer(x, view, real)
        return apply_norm(self.final_norm, x, real)
