"""The encoder-decoder Transformer of "Attention Is All You Need" (https://arxiv.org/abs/1706.03762)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from translane_export.model.attention import MultiHeadAttention
from translane_export.model.config import TransformerConfig
from translane_export.model.layers import DecoderLayer, EncoderLayer
from translane_export.model.masks import DistanceBias, View, build_rules
from translane_export.model.norms import apply_norm, build_final_norm, build_norm
from translane_export.model.positions import Alibi, ProximalBias, RelativeBuckets, build_positions


class Embedding(nn.Module):
    """Token vector, times √M if the config scales embeddings (§3.4), plus position vector (§3.5), then dropout (§5.4).

    A config may leave positions out, and have the sum normalised.
    """

    def __init__(self, config: TransformerConfig, vocab_size: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, config.d_model, padding_idx=config.pad_id)
        self.positions = build_positions(config)
        self.scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
        self.norm = build_norm(config) if config.embedding_norm else None
        self.dropout = nn.Dropout(config.dropout)
        # of tables of positions, here or in attention
        self.limit = config.max_positions if config.positions in ("sinusoidal", "learned", "rotary") else None

    def forward(self, ids: Tensor, real: Tensor | None = None) -> Tensor:
        """Embed ``ids`` [B, T] at positions 0 … T-1: -> [B, T, M]. ``real`` [B, T] is False for padding.

        Raises ValueError for a position past the config's max_positions.
        """
        size = ids.shape[1]
        if self.limit is not None and size > self.limit:
            raise ValueError(f"position {size - 1} is past the limit of {self.limit} positions")
        x = self.tokens(ids) * self.scale
        if self.positions is not None:
            x = x + self.positions(size)  # [T, M]
        if self.norm is not None:
            x = apply_norm(self.norm, x, real)
        output: Tensor = self.dropout(x)
        return output


class Stack(nn.Module):
    """Embedding, layers and, for pre-norm, a final norm.

    The layers share `biases` of their self-attention's scores, and the `rules` that say which positions see which.
    """

    def __init__(
        self,
        config: TransformerConfig,
        vocab_size: int,
        layers: int,
        build_layer: Callable[[TransformerConfig], nn.Module],
        *,
        causal: bool,
    ) -> None:
        super().__init__()
        self.embedding = Embedding(config, vocab_size)
        self.layers = nn.ModuleList(build_layer(config) for _ in range(layers))
        self.final_norm = build_final_norm(config)
        self.relative_positions = RelativeBuckets(config, both_ways=not causal) if config.relative_buckets else None
        self.alibi = Alibi(config.heads) if config.positions == "alibi" else None
        self.proximal_bias = ProximalBias() if config.proximal_bias else None
        self.rules = build_rules(config, causal=causal)

    @property
    def biases(self) -> tuple[DistanceBias, ...]:
        """What self-attention's scores are raised by."""
        every = (self.relative_positions, self.alibi, self.proximal_bias)
        return tuple(bias for bias in every if bias is not None)

    def view(self, size: int, lengths: Tensor | None, device: torch.device) -> View:
        """Return what ``size`` positions see of one another, of which ``lengths`` [B] are no padding."""
        return View(size, size, lengths, self.rules, self.biases, device)


class Encoder(Stack):
    """Source embedding, N layers and, for pre-norm, a final norm."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config, config.source_vocab_size, config.encoder_layers, EncoderLayer, causal=False)

    def forward(self, source_ids: Tensor, source_lengths: Tensor) -> Tensor:
        """Encode ``source_ids`` [B, S], padded on the right after ``source_lengths`` [B]: -> memory [B, S, M]."""
        size = source_ids.shape[1]
        view = self.view(size, source_lengths, source_ids.device)
        real = torch.arange(size, device=source_ids.device) < source_lengths[:, None]  # [B, S]
        x: Tensor = self.embedding(source_ids, real)
        for layer in self.layers:
            x = layer(x, view, real)
        return apply_norm(self.final_norm, x, real)


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
        x: Tensor = self.embedding(target_ids, real)
        for layer in self.layers:
            x = layer(x, memory, self_view, cross_view, real)
        return apply_norm(self.final_norm, x, real)


class Transformer(nn.Module):
    """Encoder, decoder and the projection to target-vocabulary logits.

    Ids are padded on the right with the config's pad_id; every source length is at least 1.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        # The paper's projection has no bias; with one (zero at first) checkpoints of models that have it fit too.
        self.output_projection = nn.Linear(config.d_model, config.target_vocab_size, bias=config.biases)
        self._initialize()
        self._tie()

    def forward(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """Predict each next target token, given the ones before it (teacher forcing).

        Shapes: source_ids [B, S] and source_lengths [B], target_ids [B, T] starting with start_id; all int64.
        Returns logits [B, T, V].
        """
        # what the decoder starts with may be the padding id
        target_lengths = 1 + (target_ids[:, 1:] != self.config.pad_id).sum(dim=1)  # [B]
        memory = self.encode(source_ids, source_lengths)
        return self.decode(target_ids, memory, source_lengths, target_lengths)

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> Tensor:
        """Encode source_ids [B, S] of source_lengths [B]: -> memory [B, S, M]."""
        memory: Tensor = self.encoder(source_ids, source_lengths)
        return memory

    def decode(
        self, target_ids: Tensor, memory: Tensor, source_lengths: Tensor, target_lengths: Tensor | None = None
    ) -> Tensor:
        """Decode target_ids [B, T] over memory [B, S, M]: -> logits [B, T, V]."""
        return self.project(self.decoder(target_ids, memory, source_lengths, target_lengths))

    def project(self, x: Tensor) -> Tensor:
        """Turn the decoder's output x [..., M] into logits [..., V]."""
        if self.config.logit_scale != 1:
            x = x * self.config.logit_scale
        logits: Tensor = self.output_projection(x)
        return logits

    def _initialize(self) -> None:
        """Xavier-uniform projections with zero biases; embeddings normal with deviation 1/√M, padding zero."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.config.d_model**-0.5)
                if module.padding_idx is not None:
                    nn.init.zeros_(module.weight[module.padding_idx])
        for module in self.modules():
            if isinstance(module, MultiHeadAttention):
                # As if Q, K and V were one [3·H·D, M] matrix, which torch.nn.Transformer and fairseq train best from.
                for projection in (module.q_proj, module.k_proj, module.v_proj):
                    nn.init.xavier_uniform_(projection.weight, gain=2**-0.5)
        if self.config.proximal_init:  # a query looks at its like first, as in Glow-TTS and VITS
            for layer in (*self.encoder.layers, *self.decoder.layers):
                attention = layer.get_submodule("self_attention")
                attention.get_submodule("k_proj").load_state_dict(attention.get_submodule("q_proj").state_dict())
        nn.init.normal_(self.output_projection.weight, std=self.config.d_model**-0.5)

    def _tie(self) -> None:
        if self.config.tie_embeddings in ("two-way", "three-way"):
            self.output_projection.weight = self.decoder.embedding.tokens.weight
        if self.config.tie_embeddings == "three-way":
            self.encoder.embedding.tokens.weight = self.decoder.embedding.tokens.weight
