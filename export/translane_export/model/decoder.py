"""The decoder stack (paper §3.1)."""

from __future__ import annotations

from torch import Tensor, nn

from translane_export.model.attention import MultiHeadAttention
from translane_export.model.config import TransformerConfig
from translane_export.model.embeddings import Embedding
from translane_export.model.feed_forward import FeedForward
from translane_export.model.masks import causal_mask, causal_padding_mask, padding_mask
from translane_export.model.relative_positions import RelativePositions
from translane_export.model.residual import Residual, final_norm


class DecoderLayer(nn.Module):
    """Self-attention over the target so far, cross-attention over the source, feed-forward, each in its residual."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention.from_config(config)
        self.self_attention_residual = Residual(config)
        self.cross_attention = MultiHeadAttention.from_config(config)
        self.cross_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(
        self, x: Tensor, memory: Tensor, self_mask: Tensor, cross_mask: Tensor, self_bias: Tensor | None = None
    ) -> Tensor:
        """Transform ``x`` [B, T, M] with ``memory`` [B, S, M].

        The masks fit [B, H, T, T] and [B, H, T, S], the bias of self-attention as its mask.
        """
        x = self.self_attention_residual(x, lambda y: self.self_attention(y, y, self_mask, self_bias))
        x = self.cross_attention_residual(x, lambda y: self.cross_attention(y, memory, cross_mask))
        output: Tensor = self.feed_forward_residual(x, self.feed_forward)
        return output


class Decoder(nn.Module):
    """Target embedding, M layers and, for pre-norm, a final norm. The output projection is the Transformer's.

    The layers share their relative positions.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.embedding = Embedding(config, config.target_vocab_size)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.final_norm = final_norm(config)
        self.relative_positions = RelativePositions(config, both_ways=False) if config.relative_buckets else None

    def forward(
        self, target_ids: Tensor, memory: Tensor, source_lengths: Tensor, target_lengths: Tensor | None = None
    ) -> Tensor:
        """Decode ``target_ids`` [B, T] over ``memory`` [B, S, M]: -> [B, T, M].

        Both sides are padded on the right. Without ``target_lengths`` the causal mask alone already keeps padding
        from every real position; with them, padding positions do not see padding either.
        """
        target_size = target_ids.shape[1]
        if target_lengths is None:
            self_mask = causal_mask(target_size, target_ids.device)  # [1, 1, T, T]
        else:
            self_mask = causal_padding_mask(target_lengths, target_size)  # [B, 1, T, T]
        cross_mask = padding_mask(source_lengths, memory.shape[1])  # [B, 1, 1, S]
        x: Tensor = self.embedding(target_ids)
        relative = self.relative_positions
        self_bias = None if relative is None else relative(target_size)  # [1, H, T, T]
        for layer in self.layers:
            x = layer(x, memory, self_mask, cross_mask, self_bias)
        output: Tensor = self.final_norm(x)
        return output
