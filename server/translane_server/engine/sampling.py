"""Samples the next token of a row, with temperature, top-k and top-p.

The order is that of Hugging Face's generate (https://huggingface.co/docs/transformers/internal/generation_utils). The
logits are divided by the temperature. Then the k best tokens are kept. Of these, the fewest best tokens whose
probabilities sum to p are kept (nucleus sampling, Holtzman et al. 2020, https://arxiv.org/abs/1904.09751). The inverse
of the cumulative distribution of the kept tokens maps a uniform number to a token. Each row is summed by itself, in
float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from translane_server.core.arrays import FloatArray, IntArray

Float64Array = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.floating[Any]]

_BIN_SHIFT = 19  # keeps the exponent and four mantissa bits of a float32: 16 bins for each power of two
_BLOCK = 256  # tokens that are summed as one block


def sample_candidates(
    token_ids: IntArray,
    scores: FloatArray,
    temperature: Numbers,
    top_k: npt.NDArray[np.integer[Any]],
    top_p: Numbers,
    uniforms: Float64Array,
) -> IntArray:
    """Draw one of the `top_k` best candidates in each of n rows.

    The result of a row depends only on its first `top_k` columns.

    Args:
        token_ids: the best tokens, best first, [n, K].
        scores: logits of these tokens, [n, K]; -inf is banned. The first token of a row is not banned.
        temperature: temperature of each row (> 0), [n].
        top_k: number of tokens to keep in each row (1 … K), [n].
        top_p: sum of probabilities to keep in each row (0 … 1), [n].
        uniforms: random number of each row in [0, 1), [n].

    Returns:
        The drawn columns, [n].
    """
    assert token_ids.shape == scores.shape
    weights = np.exp(_scaled(scores, scores[:, :1], temperature[:, None]))
    weights[np.arange(scores.shape[1]) >= np.asarray(top_k)[:, None]] = 0.0
    # cumsum adds one number after the other, so a row's sums do not depend on the number of columns
    cumulative = weights.cumsum(axis=1)
    kept = _nucleus_sizes(weights, cumulative, cumulative[:, -1], top_p)
    total = np.take_along_axis(cumulative, kept[:, None] - 1, axis=1)[:, 0]
    return _columns(cumulative, uniforms * total, kept)


def sample_all(scores: FloatArray, temperature: Numbers, top_p: Numbers, uniforms: Float64Array) -> IntArray:
    """Draw one of the V tokens in each of n rows.

    Args:
        scores: logits, [n, V]; -inf is banned. Each row has a token that is not banned.
        temperature: temperature of each row (> 0), [n].
        top_p: sum of probabilities to keep in each row (0 … 1), [n].
        uniforms: random number of each row in [0, 1), [n].

    Returns:
        The drawn tokens, [n].
    """
    tokens = np.empty(len(scores), np.int64)
    for row in range(len(scores)):  # row by row, so that the weights stay in the processor's cache
        weights = np.exp(_scaled(scores[row], scores[row].max(), temperature[row]))
        if top_p[row] < 1:
            tokens[row] = _draw_from_nucleus(weights, float(top_p[row]), float(uniforms[row]))
        else:
            tokens[row] = _draw(weights, float(uniforms[row]))
    return tokens


def _scaled(scores: FloatArray, best: FloatArray, temperature: Numbers) -> Float64Array:
    """The scores minus the best score, divided by the temperature."""
    scaled = scores.astype(np.float64)
    scaled -= best
    scaled /= temperature
    return scaled


def _draw(weights: Float64Array, uniform: float) -> int:
    """Invert the cumulative distribution: find the block, and then the token in the block."""
    starts = np.arange(0, len(weights), _BLOCK)
    blocks = np.add.reduceat(weights, starts).cumsum()
    target = uniform * blocks[-1]
    block = min(int(blocks.searchsorted(target, side="right")), len(blocks) - 1)
    if block:
        target -= blocks[block - 1]
    start = int(starts[block])
    within = weights[start : start + _BLOCK].cumsum()
    place = start + int(within.searchsorted(target, side="right"))
    if place < len(weights) and weights[place] > 0:
        return place
    # Rounding has moved the target behind the last token with a weight.
    return int(np.flatnonzero(weights[: start + _BLOCK])[-1])


def _draw_from_nucleus(weights: Float64Array, top_p: float, uniform: float) -> int:
    """Draw from the nucleus. Bins avoid a sort of all weights. The lowest ids are kept between equal weights."""
    bins = weights.astype(np.float32).view(np.int32) >> _BIN_SHIFT  # floats ≥ 0 have the order of their bits
    sums = np.bincount(bins, weights)[::-1].cumsum()
    enough = top_p * sums[-1]
    last_bin = int(sums.searchsorted(enough))
    before = sums[last_bin - 1] if last_bin else 0.0
    values = np.sort(weights[bins == len(sums) - 1 - last_bin])[::-1]
    kept = min(1 + np.count_nonzero(before + values.cumsum() < enough), np.count_nonzero(values))
    least = values[kept - 1]
    nucleus = np.flatnonzero(weights >= least)
    surplus = np.count_nonzero(values == least) - np.count_nonzero(values[:kept] == least)
    if surplus:
        nucleus = np.delete(nucleus, np.flatnonzero(weights[nucleus] == least)[-surplus:])
    return int(nucleus[_draw(weights[nucleus], uniform)])


def _nucleus_sizes(weights: Float64Array, cumulative: Float64Array, total: Float64Array, top_p: Numbers) -> IntArray:
    """The number of best tokens in each row that sum to `top_p * total`; at least one, and none of weight 0."""
    enough = (np.asarray(top_p, np.float64) * total)[:, None]
    before = cumulative[:, :-1] < enough
    kept = 1 + np.count_nonzero(before | (np.asarray(top_p)[:, None] >= 1), axis=1)
    sizes: IntArray = np.minimum(kept, np.count_nonzero(weights, axis=1))
    return sizes


def _columns(cumulative: Float64Array, targets: Float64Array, kept: IntArray) -> IntArray:
    """The first column in each row whose cumulative weight exceeds the target; a kept column in any case."""
    columns: IntArray = np.minimum(np.count_nonzero(cumulative <= targets[:, None], axis=1), kept - 1)
    return columns
