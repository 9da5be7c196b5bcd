"""What makes weights of scores: softmax, and softmax with a 1 in its denominator."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def normalize_scores(scores: Tensor, mask: Tensor | None = None, *, one_in_denominator: bool = False) -> Tensor:
    """Turn scores [..., T, S] into attention weights of the same shape.

    softmax(x)_i = exp(x_i) / Σ_j exp(x_j); with ``one_in_denominator`` it is softmax₁,
    exp(x_i) / (1 + Σ_j exp(x_j)), whose weights may all be near zero: a query may attend to nothing
    (E. Miller 2023, https://www.evanmiller.org/attention-is-off-by-one.html).
    ``mask`` is boolean and broadcastable to the scores, True where a query may look. A query that may look nowhere gets
    zeros.
    """
    # The lowest finite number instead of -inf keeps a fully masked row free of NaN, forwards and backwards.
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    if one_in_denominator:
        # one more key, whose score is 0: exp(0) is the 1
        weights = torch.softmax(F.pad(scores, (0, 1)), dim=-1)[..., :-1]
    else:
        weights = torch.softmax(scores, dim=-1)
    return weights if mask is None else weights.masked_fill(~mask, 0.0)
