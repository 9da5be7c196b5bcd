"""Relative positions: a bias on self-attention that depends on the distance of key and query.

T5, section 2.1 (https://arxiv.org/abs/1910.10683). Distances share learned scalars by buckets: half of the buckets are
for one distance each, the other half for ranges that grow with the logarithm of the distance, up to a distance from
which on all are alike.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from translane_export.model.config import TransformerConfig


class RelativePositions(nn.Module):
    """One scalar for each head and bucket: `weight` [buckets, H].

    Looking ``both_ways`` (an encoder), half of the buckets are for keys after the query; else all are for keys before.
    """

    bucket_of_offset: Tensor

    def __init__(self, config: TransformerConfig, *, both_ways: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(config.relative_buckets, config.heads) * config.d_model**-0.5)
        self.furthest = config.relative_max_distance
        self.both_ways = both_ways
        table = bucket_table(config.relative_buckets, self.furthest, both_ways=both_ways)
        self.register_buffer("bucket_of_offset", table[:, None], persistent=False)  # as an embedding of one dimension

    def between(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the bias from positions [..., T, 1] to positions [..., S]: -> [..., H, T, S]."""
        lowest = -self.furthest if self.both_ways else 0
        offsets = (queries - keys).clamp(lowest, self.furthest) - lowest  # [..., T, S]
        buckets = nn.functional.embedding(offsets, self.bucket_of_offset).squeeze(-1)  # [..., T, S]
        return nn.functional.embedding(buckets, self.weight).movedim(-1, -3)  # [..., T, S, H] -> [..., H, T, S]


def bucket_table(buckets: int, furthest: int, *, both_ways: bool) -> Tensor:
    """Return the bucket of each offset (query position less key position).

    Looking both ways, of the offsets -furthest … furthest, [2 * furthest + 1]; else of 0 … furthest, [furthest + 1].
    """
    if both_ways:
        behind = bucket_table(buckets // 2, furthest, both_ways=False)
        ahead = behind[1:].flip(0) + buckets // 2
        return torch.cat((ahead, behind))
    single = buckets // 2
    distances = torch.arange(furthest + 1)
    # in float32, whose rounding decides on which side of a bucket's edge a distance falls
    logarithms = torch.log(distances.clamp(min=1).float() / single) / math.log(furthest / single)
    ranges = single + (logarithms * (buckets - single)).long()
    return torch.where(distances < single, distances, ranges.clamp(max=buckets - 1))
