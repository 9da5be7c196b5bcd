"""Attention weights of a step, as a PyTorch module without weights of its own.

The graph is apart from the step, so that it costs nothing unless it runs: ONNX Runtime computes all of a graph,
whichever outputs are fetched. Shapes as in `translane_export.graphs`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from translane_export.graphs import cuda_ops, onnx_ops
from translane_export.model import TransformerConfig
from translane_export.model.masks import padding_mask


class AlignmentGraph(nn.Module):
    """How much a step attends to each source position, averaged over some heads of the layer the query comes from.

    alignment_query [B, H * D], source_lengths [B], the layer's cross-attention keys [B, H, S, D] -> [B, S], float32;
    zero from each row's source length on. `key_scale` is what a unit of the keys stands for.
    """

    def __init__(
        self, config: TransformerConfig, heads: Sequence[int], key_scale: float = 1.0, *, for_cuda: bool = False
    ) -> None:
        super().__init__()
        self.for_cuda = for_cuda
        self.config = config
        self.heads = list(heads)
        self.key_scale = key_scale

    def forward(self, query: Tensor, source_lengths: Tensor, keys: Tensor) -> Tensor:
        """See the class."""
        query = query.view(-1, self.config.heads, self.config.head_dim)  # [B, H, D]
        if self.for_cuda:
            scale = self.key_scale * (self.config.head_dim**-0.5 if self.config.attention_scale else 1.0)
            return self._mean(cuda_ops.attention_weights(query, keys, source_lengths, scale))
        scores = onnx_ops.score_keys(query, keys, source_lengths)  # [B, H, S]
        if self.key_scale != 1:
            scores = scores * self.key_scale
        if self.config.attention_scale:
            scores = scores / self.config.head_dim**0.5
        hidden = ~padding_mask(source_lengths, scores.shape[2])[:, :, 0]  # [B, 1, S]
        weights = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1)
        return self._mean(weights).masked_fill(hidden[:, 0], 0.0)

    def _mean(self, weights: Tensor) -> Tensor:
        """Return the mean over the heads that align: [B, H, S] -> [B, S]."""
        if len(self.heads) < self.config.heads:
            weights = weights.index_select(1, torch.tensor(self.heads))
        mean: Tensor = weights.mean(1)
        return mean
