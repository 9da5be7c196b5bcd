"""Label-smoothed cross-entropy (paper §5.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

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
    ``label_smoothing`` and ``ignore_index``. Raises ValueError for a smoothing outside [0, 1).
    """
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing: {smoothing} is outside [0, 1)")
    targets = targets.flatten()  # [B, T] -> [N]
    real = targets != pad_id
    token_losses: Tensor = _SmoothedCrossEntropy.apply(logits.flatten(0, -2), targets, smoothing)  # type: ignore[no-untyped-call]
    token_count = real.sum()
    return TokenLoss(token_losses.masked_fill(~real, 0.0).sum() / token_count.clamp(min=1), token_count)


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Per-token loss from logits [N, V] and targets [N]: -> [N], with ε = smoothing.

        loss = logsumexp(z) - (1 - ε) z[target] - ε mean(z)        d loss / dz = softmax(z) - (1 - ε) onehot - ε / V

    Autograd's own composition keeps five [N, V] tensors in flight, and allocating those takes as long as the rest
    of a small model's training step on a CPU. This one works through a few rows at a time and makes only the
    gradient. Half-precision logits are summed in float32.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        exact = torch.promote_types(logits.dtype, torch.float32)
        log_totals = logits.new_empty(len(targets), dtype=exact)
        losses = torch.empty_like(log_totals)
        for rows in _chunks(logits):
            z = logits[rows].to(exact)
            log_totals[rows] = z.logsumexp(dim=-1)
            at_target = z.gather(-1, targets[rows, None]).squeeze(-1)
            losses[rows] = log_totals[rows] - (1 - smoothing) * at_target - smoothing * z.mean(dim=-1)
        ctx.save_for_backward(logits, targets, log_totals)
        ctx.smoothing = smoothing
        return losses

    @staticmethod
    def backward(ctx: Any, *loss_gradients: Tensor) -> tuple[Tensor, None, None]:
        logits, targets, log_totals = ctx.saved_tensors
        (scale,) = loss_gradients  # [N]
        gradient = torch.empty_like(logits)
        for rows in _chunks(logits):
            z = logits[rows] - log_totals[rows, None]
            z.exp_().sub_(ctx.smoothing / logits.shape[-1])
            at_target = targets[rows, None]
            z.scatter_add_(-1, at_target, torch.full_like(at_target, ctx.smoothing - 1, dtype=z.dtype))
            gradient[rows] = z.mul_(scale[rows, None])
        return gradient, None, None


def _chunks(logits: Tensor) -> Iterator[slice]:
    """Yield slices of rows whose copy fits a CPU's cache; a GPU is better off with few, large ones."""
    elements = 2**20 if logits.device.type == "cpu" else 2**26
    count = max(1, elements // logits.shape[-1])
    for start in range(0, len(logits), count):
        yield slice(start, start + count)
