"""The decoder stack (paper §3.1)."""

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


class DecoderLayer(nn.Module):
    """Self-attention over the target so far, cross-attention over the source, feed-forward, each in its residual."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention.for_self(config)
        self.self_attention_residual = Residual(config)
        self.cross_attention = MultiHeadAttention.for_cross(config)
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
        x = self.self_attention_residual(x, lambda y: self.self_attention(y, y, self_view), real)
        x = self.cross_attention_residual(x, lambda y: self.cross_attention(y, memory, cross_view), real)
        output: Tensor = self.feed_forward_residual(x, self.feed_forward, real)
        return output


class Decoder(Stack):
    """Target embedding, M layers and, for pre-norm, a final norm. The output projection is the Transformer's."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config, config.target_vocab_size, config.decoder_layers, DecoderLayer, causal=True)

    def forward(
        self, target_ids: Tensor, memory: Tensor, source_lengths: Tensor, target_lengths: Tensor | None = None
    ) -> Tensor:
        """Decode ``target_ids`` [B, T] over ``memory`` [B, S, M]: -> [B, T, M].

        Both sides are padded on the right. Without ``target_lengths`` the causal mask alone already keeps padding
        from every real position; with them, padding positions do not see padding either.
        """
        size = target_ids.shape[1]
        self_view = self.view(size, target_lengths, target_ids.device)
        cross_view = View(size, memory.shape[1], source_lengths)
        real: Tensor | None = None
        if target_lengths is not None:
            real = torch.arange(size, device=target_ids.device) < target_lengths[:, None]  # [B, T]
        x: Tensor = self.embedding(target_ids, real=real)
        for layer in self.layers:
            x = layer(x, memory, self_view, cross_view, real)
        return apply_norm(self.final_norm, x, real)
