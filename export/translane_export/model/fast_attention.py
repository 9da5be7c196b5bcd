"""Ways to compute attention: plainly, by PyTorch's fused kernel, or a block of queries at a time.

Nothing here changes what attention is: that is `translane_export.model.attention`'s. The ways give the same numbers,
to rounding. The plain way has all weights in memory, T · S numbers for each head, and keeps them for the backward pass.
PyTorch's kernel never has all weights at once. Nor do blocks, whose weights are computed once more in the backward pass
(Rabe and Staats 2021, https://arxiv.org/abs/2112.05682).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from translane_export.model.masks import View

if TYPE_CHECKING:
    from translane_export.model.attention import ScaledDotProduct

# Up to here the ways take about the same time on a CPU, and which is the fastest depends on the processor and the type:
# with AMX in bfloat16 the plain way, 180 ms for a step of the small preset against 240 ms (32 × 48 tokens); with AVX2
# PyTorch's kernel, by 3 to 14%. Beyond, the weights take more memory than all else. docs/attention.md has figures.
_PLAIN_UP_TO = 512 * 512  # weights of a head
_BLOCK = 256  # queries


def attend(
    formula: ScaledDotProduct, queries: Tensor, keys: Tensor, values: Tensor, view: View, dropout: float = 0.0
) -> Tensor:
    """Attend by whichever way suits the sizes, the device and the formula.

    Shapes: queries [B, H, T, d_k], keys [B, H or fewer, S, d_k], values [B, H or fewer, S, d_v]. ``dropout`` is the
    probability with which an attention weight is dropped. Returns [B, H, T, d_v].
    """
    small = view.queries * view.keys <= _PLAIN_UP_TO
    if small and not (queries.is_cuda and _can_be_fused(formula, queries, values, view, dropout)):
        return attend_plainly(formula, queries, keys, values, view, dropout)
    if _can_be_fused(formula, queries, values, view, dropout):
        return attend_fused(formula, queries, keys, values, view, dropout)
    return attend_by_blocks(formula, queries, keys, values, view, dropout)


def attend_plainly(
    formula: ScaledDotProduct, queries: Tensor, keys: Tensor, values: Tensor, view: View, dropout: float = 0.0
) -> Tensor:
    """Attend as the formula is written; see `attend` for shapes."""
    return formula.attend(queries, keys, values, view.whole, dropout)


def attend_by_blocks(
    formula: ScaledDotProduct,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    view: View,
    dropout: float = 0.0,
    block: int = _BLOCK,
) -> Tensor:
    """Attend with ``block`` queries at a time, whose weights are computed once more in the backward pass."""

    def run(some: Tensor, first: int) -> Tensor:
        return formula.attend(some, keys, values, view.block(first, first + some.shape[2]), dropout)

    contexts = []
    for first in range(0, view.queries, block):
        some = queries[:, :, first : first + block]
        if torch.is_grad_enabled():
            contexts.append(checkpoint(run, some, first, use_reentrant=False))
        else:
            contexts.append(run(some, first))
    return torch.cat(contexts, dim=2)


def attend_fused(
    formula: ScaledDotProduct, queries: Tensor, keys: Tensor, values: Tensor, view: View, dropout: float = 0.0
) -> Tensor:
    """Attend by ``torch.nn.functional.scaled_dot_product_attention``, for formulas without relative vectors."""
    assert formula.relative is None
    mask, bias, _, _ = view.whole
    if formula.one_in_denominator:  # one more key, whose score is 0 and whose value is 0
        keys, values = F.pad(keys, (0, 0, 0, 1)), F.pad(values, (0, 0, 0, 1))
        mask = None if mask is None else F.pad(mask, (0, 1), value=True)
        bias = None if bias is None else F.pad(bias, (0, 1))
    given = mask
    if bias is not None:
        given = bias.to(queries.dtype)
        if mask is not None:
            given = given.masked_fill(~mask, torch.finfo(given.dtype).min)
    sharing = queries.shape[1] // keys.shape[1]
    keys, values = for_each_head(keys, sharing), for_each_head(values, sharing)
    context = F.scaled_dot_product_attention(queries, keys, values, given, dropout, scale=formula.scale)
    if mask is None:
        return context
    # A query that may look nowhere has a context of zeros.
    return context.masked_fill(~mask.any(-1, keepdim=True), 0.0)


def _can_be_fused(formula: ScaledDotProduct, queries: Tensor, values: Tensor, view: View, dropout: float) -> bool:
    """Whether PyTorch's kernel computes the formula without all weights in memory.

    The kernel takes no bias that is trained. On a CPU it takes no dropout, and values of the size of keys alone.
    """
    if formula.relative is not None:
        return False
    if view.has_biases and torch.is_grad_enabled():
        bias = view.whole.bias
        if bias is not None and bias.requires_grad:
            return False
    return queries.is_cuda or (dropout == 0 and queries.shape[-1] == values.shape[-1])


def for_each_head(x: Tensor, sharing: int) -> Tensor:
    """Repeat keys or values that ``sharing`` heads of queries share: [B, G, S, D] -> [B, G * sharing, S, D]."""
    return x if sharing == 1 else x.unsqueeze(2).expand(-1, -1, sharing, -1, -1).flatten(1, 2)
