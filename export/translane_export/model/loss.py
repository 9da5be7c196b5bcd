"""Label-smoothed cross-entropy (paper §5.4)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class TokenLoss(NamedTuple):
    """A loss over the real tokens of a batch; ``mean * token_count`` is their sum."""

    mean: Tensor  # scalar, nats per token; 0 when the batch is all padding
    token_count: Tensor  # scalar, int64


def label_smoothed_cross_entropy(logits: Tensor, targets: Tensor, pad_id: int, smoothing: float = 0.0) -> TokenLoss:
    """Cross-entropy against targets that keep 1 - ``smoothing`` and spread the rest evenly over the vocabulary.

    Shapes: logits [B, T, V] and targets [B, T], or [N, V] and [N]. Positions whose target is ``pad_id`` do not
    count. Smoothing as in https://arxiv.org/abs/1512.00567 §7; equals ``torch.nn.functional.cross_entropy`` with
    ``label_smoothing`` and ``ignore_index``.
    """
    # bfloat16 and float16 logits are summed in float32.
    log_probs = logits.log_softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    real = targets != pad_id
    loss = -log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)  # [..., V] -> [...]
    if smoothing:
        loss = (1 - smoothing) * loss - smoothing * log_probs.mean(dim=-1)
    token_count = real.sum()
    return TokenLoss(loss.masked_fill(~real, 0.0).sum() / token_count.clamp(min=1), token_count)
