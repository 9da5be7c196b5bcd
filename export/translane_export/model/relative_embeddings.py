"""Relative positions as vectors for keys and values, up to a largest distance.

Shaw et al. 2018 (https://arxiv.org/abs/1803.02155), equations 3 and 4. The encoders of Glow-TTS
(https://arxiv.org/abs/2005.11129) and VITS (https://arxiv.org/abs/2106.06103) have them, too.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RelativeEmbeddings(nn.Module):
    """A vector r_k for each head and distance j - i that is added to key j, and a vector r_v that is added to value j.

    score_ij = q_i · (k_j + r_k[j - i]) and output_i = Σ_j weight_ij (v_j + r_v[j - i]).

    `keys` is [H or 1, 2·window + 1, d_k] and `values` [H or 1, 2·window + 1, d_v]; the heads share one table, or each
    has its own. Place `window` is distance 0, and the places after it are keys after the query. Distances beyond the
    window have the vector of its edge if they are ``clipped`` (Shaw), and none otherwise (Glow-TTS, VITS).
    """

    def __init__(self, *, window: int, tables: int, key_size: int, value_size: int, clipped: bool) -> None:
        super().__init__()
        self.window = window
        self.shared = tables == 1
        self.clipped = clipped
        places = 2 * window + 1
        self.keys = nn.Parameter(torch.randn(tables, places, key_size) * key_size**-0.5)
        self.values = nn.Parameter(torch.randn(tables, places, value_size) * key_size**-0.5)

    def places(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the place of each distance from positions [..., T, 1] to [..., S]: -> [..., T, S] from 0 to 2·window.

        Where distances are not clipped, those beyond the window have the place 2·window + 1.
        """
        offsets = keys - queries
        places = offsets.clamp(-self.window, self.window) + self.window
        if self.clipped:
            return places
        return torch.where(offsets.abs() <= self.window, places, 2 * self.window + 1)

    def raise_scores(self, queries: Tensor, places: Tensor) -> Tensor:
        """Return q_i · r_k of each place: queries [B, H, T, d_k] and places [T, S] -> [B, H, T, S]."""
        products = queries @ self.keys.transpose(-2, -1)  # [B, H, T, 2 * window + 1]
        if not self.clipped:
            products = F.pad(products, (0, 1))
        return products.gather(-1, places.expand(*products.shape[:2], *places.shape))

    def mix(self, weights: Tensor, places: Tensor) -> Tensor:
        """Return Σ_j weight_ij r_v of each place: weights [B, H, T, S] and places [T, S] -> [B, H, T, d_v]."""
        size = 2 * self.window + 1
        shares = weights.new_zeros(*weights.shape[:3], size if self.clipped else size + 1)
        shares = shares.scatter_add(-1, places.expand_as(weights), weights)  # [B, H, T, places]
        return shares[..., :size] @ self.values
