"""Samples the next token of a row, with temperature, top-k and top-p.

The order is that of Hugging Face's generate (https://huggingface.co/docs/transformers/internal/generation_utils). The
logits are divided by the temperature. Then the k best tokens are kept. Of these, the fewest best tokens whose
probabilities sum to p are kept (nucleus sampling, Holtzman et al. 2020, https://arxiv.org/abs/1904.09751). The inverse
of the cumulative distribution of the kept tokens maps a uniform number to a token. Each row is summed by itself, in
float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from translane_server.core.arrays import FloatArray, Int32Array, IntArray
from translane_server.engine.options import Kind, Sampling
from translane_server.engine.processors import RankedTokens
from translane_server.engine.rows import RowTable
from translane_server.engine.search import Search

UIntArray = npt.NDArray[np.uint64]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, odd
_FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SECOND_FACTOR = np.uint64(0x94D049BB133111EB)
_RESOLUTION = 53  # bits of a float64's mantissa


def uniforms(seeds: UIntArray, streams: IntArray, positions: Int32Array) -> npt.NDArray[np.float64]:
    """Numbers from the uniform distribution over [0, 1), one for each of n rows.

    A number depends on a sentence's seed, a hypothesis' number and a position, and on nothing else. The generator is
    counter-based (Salmon et al. 2011, https://doi.org/10.1145/2063384.2063405): each number is a hash of these three
    coordinates. So a row draws the same numbers in any batch. The hash applies the finalizer of SplitMix64 (Steele et
    al. 2014, https://doi.org/10.1145/2660193.2660195) once for each coordinate. Each array is [n].
    """
    hashed = _mix(_bits(seeds) + _GAMMA)
    hashed = _mix((hashed ^ _bits(streams)) + _GAMMA)
    hashed = _mix((hashed ^ _bits(positions)) + _GAMMA)
    return (hashed >> np.uint64(64 - _RESOLUTION)).astype(np.float64) * 2.0**-_RESOLUTION


def _bits(numbers: npt.NDArray[np.integer[Any]]) -> UIntArray:
    """Convert to 64 bits. Negative numbers wrap around. A scalar becomes an array, whose overflow does not warn."""
    return np.atleast_1d(numbers).astype(np.uint64)


def _mix(bits: UIntArray) -> UIntArray:
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST_FACTOR
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND_FACTOR
    return bits ^ (bits >> np.uint64(31))


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
    """Draw one of the `top_k` best candidates in each of n rows; return the drawn columns, [n].

    The result of a row depends only on its first `top_k` columns. Scores are logits, best first, [n, K], and -inf is
    banned; the first token of a row is not. Each row has a temperature (> 0), `top_k` (1 … K), `top_p` (0 … 1), the sum
    of probabilities to keep, and a random number in [0, 1), all [n].
    """
    assert token_ids.shape == scores.shape
    weights = np.exp(_scaled(scores, scores[:, :1], temperature[:, None]))
    weights[np.arange(scores.shape[1]) >= np.asarray(top_k)[:, None]] = 0.0
    # cumsum adds one number after the other, so a row's sums do not depend on the number of columns
    cumulative = weights.cumsum(axis=1)
    kept = _nucleus_sizes(weights, cumulative, cumulative[:, -1], top_p)
    total = np.take_along_axis(cumulative, kept[:, None] - 1, axis=1)[:, 0]
    # The first column whose cumulative weight exceeds the target, or the last kept one.
    columns: IntArray = np.minimum(np.count_nonzero(cumulative <= (uniforms * total)[:, None], axis=1), kept - 1)
    return columns


def sample_all(scores: FloatArray, temperature: Numbers, top_p: Numbers, uniforms: Float64Array) -> IntArray:
    """Draw one of the V tokens in each of n rows; see `sample_candidates`. Scores are logits in any order, [n, V]."""
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


class _Draws:
    """The parameters of D draws: each has a row, which may occur several times, and a stream of random numbers."""

    def __init__(self, rows: IntArray, samplings: Sequence[Sampling], streams: IntArray, table: RowTable) -> None:
        self.rows = rows
        self.temperature = np.array([each.temperature for each in samplings])
        self.top_k = np.array([each.top_k for each in samplings])
        self.top_p = np.array([each.top_p for each in samplings])
        seeds = np.array([each.seed for each in samplings], np.uint64)
        self.uniforms = uniforms(seeds, streams, table.positions[rows])


def draw_tokens(
    ranked: RankedTokens, rows: IntArray, searches: Sequence[Search], streams: IntArray, table: RowTable, eos: int
) -> tuple[IntArray, FloatArray]:
    """Draw D tokens; see `_Draws`. Return them and their log-probabilities, both [D].

    The token is `eos` if all tokens of a row are banned.
    """
    tokens = np.zeros(len(rows), np.int64)
    log_probs = np.zeros(len(rows), np.float32)
    for kind, draw in _WAYS.items():
        drawn = [number for number, search in enumerate(searches) if search.options.kind is kind]
        if drawn:
            samplings = [sampling for each in drawn if (sampling := searches[each].options.sampling)]
            tokens[drawn], log_probs[drawn] = draw(ranked, _Draws(rows[drawn], samplings, streams[drawn], table), eos)
    return tokens, log_probs


def _from_candidates(ranked: RankedTokens, draws: _Draws, eos: int) -> tuple[IntArray, FloatArray]:
    rows = draws.rows
    nothing = ranked.scores[rows, 0] == -np.inf
    columns = sample_candidates(
        ranked.token_ids[rows],
        np.where(nothing[:, None], np.float32(0), ranked.scores[rows]),
        draws.temperature,
        np.minimum(draws.top_k, ranked.scores.shape[1]),
        draws.top_p,
        draws.uniforms,
    )
    tokens, log_probs = ranked.token_ids[rows, columns], ranked.log_probs[rows, columns]
    for draw in nothing.nonzero()[0].tolist():
        tokens[draw], log_probs[draw] = eos, ranked.log_prob(int(rows[draw]), eos)
    return tokens, log_probs


def _from_vocabulary(ranked: RankedTokens, draws: _Draws, eos: int) -> tuple[IntArray, FloatArray]:
    logits, rows = ranked.logits, draws.rows
    assert logits is not None
    scores = np.stack([ranked.whole_row(row) for row in rows.tolist()])
    for draw, top_k in enumerate(draws.top_k.tolist()):
        if 0 < top_k < scores.shape[1]:
            scores[draw, scores[draw] < np.partition(scores[draw], -top_k)[-top_k]] = -np.inf
    tokens = np.full(len(rows), eos, np.int64)
    there = np.flatnonzero((scores > -np.inf).any(axis=1))
    if there.size:
        tokens[there] = sample_all(scores[there], draws.temperature[there], draws.top_p[there], draws.uniforms[there])
    return tokens, logits[rows, tokens] - ranked.normalisers[rows]


_Way = Callable[[RankedTokens, _Draws, int], tuple[IntArray, FloatArray]]
_WAYS: dict[Kind, _Way] = {Kind.SAMPLE_CANDIDATES: _from_candidates, Kind.SAMPLE_VOCABULARY: _from_vocabulary}


def first_tokens(
    ranked: RankedTokens, search: Search, table: RowTable, eos: int
) -> tuple[IntArray, FloatArray, IntArray]:
    """The first generated tokens of a search with several samples or alternatives.

    Returns:
        The tokens, their log-probabilities and their streams of random numbers, all [B] with B ≥ 1. If all tokens are
        banned, each token is `eos`.
    """
    (row,), count = search.rows, search.branches
    if search.options.kind is not Kind.GREEDY:
        streams = np.arange(count)
        return *draw_tokens(ranked, np.full(count, row), [search] * count, streams, table, eos), streams
    there = (ranked.scores[row, :count] > -np.inf).nonzero()[0]
    if there.size:
        return ranked.token_ids[row, there], ranked.log_probs[row, there], np.zeros(len(there), np.int64)
    return np.array([eos]), np.array([ranked.log_prob(row, eos)], np.float32), np.zeros(1, np.int64)
