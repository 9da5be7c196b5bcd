"""Attention weights of a step, as a PyTorch module without weights of its own.

The graph is apart from the step, so that it costs nothing unless it runs: ONNX Runtime computes all of a graph,
whichever outputs are fetched. Shapes as in `translane_export.graphs`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from translane_export.graphs import cuda_ops, onnx_ops
from translane_export.graphs.head_padding import padded_config
from translane_export.graphs.onnx_nodes import HeadForm
from translane_export.model import TransformerConfig
from translane_export.model.attention import normalize_scores
from translane_export.model.masks import padding_mask


class AlignmentGraph(nn.Module):
    """How much a step attends to each source position, averaged over some heads of the layer the query comes from.

    alignment_query [B, H * D], source_lengths [B], the layer's cross-attention keys [B, G, S, D] -> [B, S], float32;
    zero from each row's source length on. `key_scale` is what a unit of the keys stands for.
    """

    def __init__(
        self, config: TransformerConfig, heads: Sequence[int], key_scale: float = 1.0, *, for_cuda: bool = False
    ) -> None:
        super().__init__()
        self.for_cuda = for_cuda
        padded = padded_config(config)
        self.form = HeadForm(
            heads=padded.heads,
            kv_heads=padded.key_value_heads,
            size=padded.head_dim,
            scale=key_scale * padded.score_scale,
            one_in_denominator=padded.attention_normalizer == "softmax1",
            rotary=None,
        )
        self.heads = list(heads)

    def forward(self, query: Tensor, source_lengths: Tensor, keys: Tensor) -> Tensor:
        """See the class."""
        form = self.form
        query = query.view(-1, form.heads, form.size)  # [B, H, D]
        if self.for_cuda:
            return self._mean(cuda_ops.attention_weights(query, keys, source_lengths, form))
        scores = onnx_ops.score_keys(query, keys, source_lengths, form.sharing) * form.scale  # [B, H, S]
        hidden = ~padding_mask(source_lengths, scores.shape[2])[:, :, 0]  # [B, 1, S]
        scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        weights = normalize_scores(scores, one_in_denominator=form.one_in_denominator)
        return self._mean(weights).masked_fill(hidden[:, 0], 0.0)

    def _mean(self, weights: Tensor) -> Tensor:
        """Return the mean over the heads that align: [B, H, S] -> [B, S]."""
        if len(self.heads) < self.form.heads:
            weights = weights.index_select(1, torch.tensor(self.heads))
        mean: Tensor = weights.mean(1)
        return mean
