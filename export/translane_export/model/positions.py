"""How a model tells positions apart. Position i is a query's, j a key's.

kind                                 what it does                                  where
sinusoids, `SinusoidalPositions`     adds a fixed vector to a token's              paper §3.5
learned, `LearnedPositions`          adds a trained vector to a token's            paper §3.5
rotary, `Rotary`                     turns q_i by i and k_j by j                   https://arxiv.org/abs/2104.09864
ALiBi, `Alibi`                       lowers scores by m_h · |i - j|                https://arxiv.org/abs/2108.12409
proximal, `ProximalBias`             lowers scores by log(1 + |i - j|)             https://arxiv.org/abs/2005.11129
buckets, `RelativeBuckets`           raises scores by b_h[bucket(i - j)]           https://arxiv.org/abs/1910.10683
relative, `RelativeVectors`          adds vectors of j - i to k_j and v_j          https://arxiv.org/abs/1803.02155

The first two are a part of the embeddings; the others are known to self-attention alone. The three biases of scores are
those that a stack's layers share; rotary positions and relative vectors belong to each layer.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from translane_export.model.config import TransformerConfig

# ---- vectors beside those of tokens ----


def sinusoid_table(max_positions: int, d_model: int) -> Tensor:
    """Return the paper's table [max_positions, M] in float32.

    PE(pos, 2i) = sin(pos / 10000^(2i/M)), PE(pos, 2i+1) = cos(pos / 10000^(2i/M)). Computed in float64: far
    positions lose several digits of the angle in float32.
    """
    positions = torch.arange(max_positions, dtype=torch.float64)  # [max_positions]
    even_dimensions = torch.arange(0, d_model, 2, dtype=torch.float64)  # [M / 2]
    angles = positions[:, None] / 10000.0 ** (even_dimensions / d_model)  # [max_positions, M / 2]
    interleaved = torch.stack((angles.sin(), angles.cos()), dim=-1)  # [max_positions, M / 2, 2]
    return interleaved.flatten(1).float()  # [max_positions, M]


class SinusoidalPositions(nn.Module):
    """The fixed sinusoids. The table is derived, so it is a buffer that checkpoints leave out."""

    table: Tensor

    def __init__(self, max_positions: int, d_model: int) -> None:
        super().__init__()
        self.register_buffer("table", sinusoid_table(max_positions, d_model), persistent=False)

    def forward(self, count: int) -> Tensor:
        """Return the vectors of positions 0 … count-1, [count, M]."""
        return self.table[:count]


class LearnedPositions(nn.Module):
    """One trained vector per position."""

    def __init__(self, max_positions: int, d_model: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(max_positions, d_model)

    def forward(self, count: int) -> Tensor:
        """Return the vectors of positions 0 … count-1, [count, M]."""
        return self.embedding.weight[:count]


def build_positions(config: TransformerConfig) -> SinusoidalPositions | LearnedPositions | None:
    """Build the kind of position vectors the config names; None where there are none, or only attention knows them."""
    match config.positions:
        case "learned":
            return LearnedPositions(config.max_positions, config.d_model)
        case "sinusoidal":
            return SinusoidalPositions(config.max_positions, config.d_model)
    return None


# ---- angles of queries and keys ----


class Rotary(nn.Module):
    """Turns pairs of numbers of a query or key at position p by the angles p · base^(-2i/D), i = 0 … D/2 - 1.

    (x, y) -> (x cos a - y sin a, x sin a + y cos a): Su et al. 2021 (https://arxiv.org/abs/2104.09864), section 3.2.
    The products of turned queries and keys depend on how far apart they are. A pair is numbers i and i + D/2, or
    neighbours if ``interleaved``, as in the paper.

    `cosines` and `sines` are [max_positions, D/2].
    """

    cosines: Tensor
    sines: Tensor

    def __init__(self, size: int, max_positions: int, base: float, *, interleaved: bool = False) -> None:
        super().__init__()
        self.interleaved = interleaved
        # in float64: far positions lose digits of the angle in float32
        rates = base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)  # [D / 2]
        angles = torch.arange(max_positions, dtype=torch.float64)[:, None] * rates  # [max_positions, D / 2]
        self.register_buffer("cosines", angles.cos().float(), persistent=False)
        self.register_buffer("sines", angles.sin().float(), persistent=False)

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Turn ``x`` [B, H, T, D] at ``positions`` [B, T], or at 0 … T-1: -> [B, H, T, D]. All are below the limit."""
        if positions is None:
            size = x.shape[2]
            cosines, sines = self.cosines[:size], self.sines[:size]  # [T, pairs]
        else:
            cosines, sines = self.cosines[positions][:, None], self.sines[positions][:, None]  # [B, 1, T, pairs]
        pairs = cosines.shape[-1]
        if self.interleaved:
            first, second = x[..., 0 : 2 * pairs : 2], x[..., 1 : 2 * pairs : 2]
        else:
            first, second = x[..., :pairs], x[..., pairs : 2 * pairs]
        turned = (first * cosines - second * sines, first * sines + second * cosines)
        if self.interleaved:
            return torch.stack(turned, dim=-1).flatten(-2).to(x.dtype)
        return torch.cat((*turned, x[..., 2 * pairs :]), dim=-1).to(x.dtype)


def build_rotary(config: TransformerConfig) -> Rotary | None:
    """Build what turns queries and keys, where the config has it."""
    if config.positions != "rotary":
        return None
    return Rotary(config.head_dim, config.max_positions, config.rotary_base, interleaved=config.rotary_interleaved)


# ---- biases of scores ----


class Alibi(nn.Module):
    """-m_h · |i - j|, with a slope m_h for each head (Press et al. 2022, https://arxiv.org/abs/2108.12409, section 3).

    The paper's decoder looks back alone. An encoder looks both ways, and falls off alike on either side.
    """

    slopes: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.tensor(alibi_slopes(heads)), persistent=False)  # [H]

    def between(self, queries: Tensor, keys: Tensor) -> Tensor:
        """See `DistanceBias`."""
        distances = (queries - keys).abs().unsqueeze(-3)  # [..., 1, T, S]
        return -self.slopes[:, None, None] * distances.to(self.slopes.dtype)


class ProximalBias(nn.Module):
    """-log(1 + |i - j|): near keys first, as the encoder of Glow-TTS has it (https://arxiv.org/abs/2005.11129)."""

    unit: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("unit", torch.ones(()), persistent=False)  # has the type that the model computes in

    def between(self, queries: Tensor, keys: Tensor) -> Tensor:
        """See `DistanceBias`."""
        distances = (queries - keys).abs().unsqueeze(-3)  # [..., 1, T, S]
        return -torch.log(self.unit + distances.to(self.unit.dtype))


def alibi_slopes(heads: int) -> list[float]:
    """Return the slope of each head: a geometric sequence that ends with 2^-8.

    For n heads, where n is a power of two, they are 2^(-8/n), 2^(-16/n), … Otherwise they are those of the next lower
    power of two, and then every other one of the next higher power's, as the authors' code has it.
    """
    lower = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (place + 1) / lower) for place in range(lower)]
    return slopes + [2 ** (-4 * (place + 1) / lower) for place in range(0, 2 * (heads - lower), 2)]


class RelativeBuckets(nn.Module):
    """One trained scalar for each head and bucket of distances: `weight` [buckets, H]; T5, section 2.1.

    Half of the buckets are for one distance each, the other half for ranges that grow with the logarithm of the
    distance, up to a distance from which on all are alike (https://arxiv.org/abs/1910.10683). Looking ``both_ways``
    (an encoder), half of the buckets are for keys after the query; else all are for keys before.
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
        buckets = F.embedding(offsets, self.bucket_of_offset).squeeze(-1)  # [..., T, S]
        return F.embedding(buckets, self.weight).movedim(-1, -3)  # [..., T, S, H] -> [..., H, T, S]


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


# ---- vectors of distances ----


class RelativeVectors(nn.Module):
    """A vector r_k for each head and distance j - i that is added to key j, and a vector r_v that is added to value j.

    Shaw et al. 2018 (https://arxiv.org/abs/1803.02155), equations 3 and 4:
    score_ij = q_i · (k_j + r_k[j - i]) and output_i = Σ_j weight_ij (v_j + r_v[j - i]).

    `keys` is [H or 1, 2·window + 1, d_k] and `values` [H or 1, 2·window + 1, d_v]; the heads share one table, or each
    has its own. Place `window` is distance 0, and the places after it are keys after the query. Distances beyond the
    window have the vector of its edge if they are ``clipped`` (Shaw), and none otherwise (the encoders of Glow-TTS,
    https://arxiv.org/abs/2005.11129, and VITS, https://arxiv.org/abs/2106.06103).
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


def build_relative(config: TransformerConfig) -> RelativeVectors | None:
    """Build the vectors of distances, where the config has them."""
    if not config.relative_window:
        return None
    return RelativeVectors(
        window=config.relative_window,
        tables=1 if config.relative_shared else config.heads,
        key_size=config.head_dim,
        value_size=config.value_dim,
        clipped=config.relative_clipped,
    )
