"""What the encoder and the decoder have in common: embedding, layers, norm, and what positions do to self-attention."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from translane_export.model.config import TransformerConfig
from translane_export.model.distance_biases import Alibi, DistanceBias, ProximalBias
from translane_export.model.embeddings import Embedding
from translane_export.model.masks import BlockRule, CausalRule, MaskRule, WindowRule
from translane_export.model.norms import build_final_norm
from translane_export.model.relative_positions import RelativePositions
from translane_export.model.views import View


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
        self.relative_positions = RelativePositions(config, both_ways=not causal) if config.relative_buckets else None
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


def build_rules(config: TransformerConfig, *, causal: bool) -> tuple[MaskRule, ...]:
    """Return which positions see which in a stack's self-attention, padding apart."""
    rules: list[MaskRule] = [CausalRule()] if causal else []
    if config.block_length:
        rules.append(BlockRule(config.block_length))
    if config.window_size:
        forward = 0 if causal else config.look_forward
        rules.append(WindowRule(config.window_size, config.look_backward, forward, config.exact_window))
    return tuple(rules)
