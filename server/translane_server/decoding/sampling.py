"""Drawing the next token from a row's distribution: temperature, top-k and top-p.

In the order of Hugging Face's generate (https://huggingface.co/docs/transformers/internal/generation_utils): logits are
divided by the temperature, the k best tokens are kept, and of these the fewest best ones whose probabilities add up to
p (nucleus sampling, Holtzman et al. 2020, https://arxiv.org/abs/1904.09751). Among what is kept, the inverse of the
cumulative distribution maps one uniform number to a token. Sums run over float64, in a row of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from translane_server.arrays import FloatArray, IntArray

Float64Array = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.floating[Any]]

_BIN_SHIFT = 19  # bits of a float32 that leave its exponent and four of its mantissa: 16 bins for each power of two
_BLOCK = 256  # tokens whose probabilities are added up together


def sample_candidates(
    token_ids: IntArray,
    scores: FloatArray,
    temperature: Numbers,
    top_k: npt.NDArray[np.integer[Any]],
    top_p: Numbers,
    uniforms: Float64Array,
) -> IntArray:
    """Draw one of the `top_k` best candidates of n rows.

    What a row draws depends on its first `top_k` columns alone.

    Args:
        token_ids: the best tokens, best first, [n, K].
        scores: their logits, [n, K]; -inf is banned, and the first one is not.
        temperature: > 0, [n].
        top_k: 1 … K, [n].
        top_p: 0 … 1, [n].
        uniforms: one random number of [0, 1) for each row, [n].

    Returns:
        The columns drawn, [n].
    """
    assert token_ids.shape == scores.shape
    weights = np.exp(_scaled(scores, scores[:, :1], temperature[:, None]))
    weights[np.arange(scores.shape[1]) >= np.asarray(top_k)[:, None]] = 0.0
    # one after the other, so that a row's sums are the same however many columns follow
    cumulative = weights.cumsum(axis=1)
    kept = _nucleus_sizes(weights, cumulative, cumulative[:, -1], top_p)
    total = np.take_along_axis(cumulative, kept[:, None] - 1, axis=1)[:, 0]
    return _columns(cumulative, uniforms * total, kept)


def sample_all(scores: FloatArray, temperature: Numbers, top_p: Numbers, uniforms: Float64Array) -> IntArray:
    """Draw one of the V tokens of n rows.

    Args:
        scores: logits, [n, V]; -inf is banned, and not all of a row is.
        temperature: > 0, [n].
        top_p: 0 … 1, [n].
        uniforms: one random number of [0, 1) for each row, [n].

    Returns:
        Token ids, [n].
    """
    tokens = np.empty(len(scores), np.int64)
    for row in range(len(scores)):  # a row's weights stay in the processor's cache
        weights = np.exp(_scaled(scores[row], scores[row].max(), temperature[row]))
        if top_p[row] < 1:
            tokens[row] = _draw_from_nucleus(weights, float(top_p[row]), float(uniforms[row]))
        else:
            tokens[row] = _draw(weights, float(uniforms[row]))
    return tokens


def _scaled(scores: FloatArray, best: FloatArray, temperature: Numbers) -> Float64Array:
    """Scores divided by the temperature, relative to the best one's."""
    scaled = scores.astype(np.float64)
    scaled -= best
    scaled /= temperature
    return scaled


def _draw(weights: Float64Array, uniform: float) -> int:
    """Inverse of the cumulative distribution: block by block, then within one."""
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
    # rounding has carried the target past the last token with a weight
    return int(np.flatnonzero(weights[: start + _BLOCK])[-1])


def _draw_from_nucleus(weights: Float64Array, top_p: float, uniform: float) -> int:
    """Find the least weight of the nucleus and sort little for it; of equal weights the lowest ids are kept."""
    bins = weights.astype(np.float32).view(np.int32) >> _BIN_SHIFT  # floats at least 0 are ordered as their bits
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
    """How many of the best tokens of n rows add up to `top_p` of `total`: at least one, and none without a weight."""
    enough = (np.asarray(top_p, np.float64) * total)[:, None]
    before = cumulative[:, :-1] < enough
    kept = 1 + np.count_nonzero(before | (np.asarray(top_p)[:, None] >= 1), axis=1)
    sizes: IntArray = np.minimum(kept, np.count_nonzero(weights, axis=1))
    return sizes


def _columns(cumulative: Float64Array, targets: Float64Array, kept: IntArray) -> IntArray:
    """The first column of each row whose cumulative weight exceeds the target."""
    columns: IntArray = np.minimum(np.count_nonzero(cumulative <= targets[:, None], axis=1), kept - 1)
    return columns
