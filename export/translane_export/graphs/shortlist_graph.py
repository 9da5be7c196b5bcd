"""A decoder step that multiplies with some tokens of the vocabulary alone: those that the rows' shortlists have.

Shapes: B rows, M model size, V vocabulary, U tokens of the step, K candidates.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from translane_export.graphs import candidates
from translane_export.graphs.encoder_decoder import DecoderGraph
from translane_export.graphs.onnx_nodes import emit

STEP = "step"  # the part of the graph that is a decoder: its weights have this before their names


class ShortlistGraph(nn.Module):
    """The step of `DecoderGraph` over U of the V tokens, with the same weights.

    Inputs as of `DecoderGraph`, with shortlist [U] (the tokens) and outside [B, U] (0, or -inf where a row may not use
    a token) after num_candidates -> candidate_places [B, K], which number the tokens of the shortlist, logits [B, U],
    the alignment layer's query, each layer's updated self-attention caches.
    """

    def __init__(self, step: DecoderGraph) -> None:
        super().__init__()
        self.step = step

    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        source_lengths: Tensor,
        num_candidates: Tensor,
        shortlist: Tensor,
        outside: Tensor,
        *caches: Tensor,
    ) -> tuple[Tensor, ...]:
        """See the class."""
        step = self.step.run(token_ids, positions, source_lengths, caches)
        logits = self._project(step.hidden, shortlist) + outside
        layer = self.step.alignment_layer
        alignment = () if layer is None else (step.queries[layer],)
        return candidates.top_k(logits, num_candidates)[1], logits, *alignment, *step.present

    def _project(self, x: Tensor, shortlist: Tensor) -> Tensor:
        """Return the logits [B, U] of x [B, M].

        ONNX Runtime adds up the product of a single row in another order than that of several. So there is always
        another row.
        """
        projection = self.step.output_projection
        weight = nn.functional.embedding(shortlist, projection.weight)  # [U, M]
        x = torch.cat((x, x[:1]))  # [B + 1, M]
        shape = (x.shape[0], shortlist.shape[0])
        product = emit("Gemm", (x, weight), x.dtype, shape, {"transB": 1})[:-1]
        return product if projection.bias is None else product + projection.bias[shortlist]
