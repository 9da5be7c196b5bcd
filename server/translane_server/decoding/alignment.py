"""What cross-attention weights tell: which source token a target token comes from, and what was translated at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from translane_server.arrays import FloatArray
from translane_server.sentence import AlignedToken

# A source token that nothing has attended to counts as covered by so much: its logarithm stays finite.
LEAST_COVERAGE = 1e-9


def aligned_tokens(attention: FloatArray, source_length: int) -> tuple[AlignedToken, ...]:
    """The source token that each target token attends to most.

    The end-of-sentence token is passed over, unless the source has no other: attention rests there where a target token
    has no counterpart. Of equal weights the first one counts.

    Args:
        attention: weights of T target tokens over at least `source_length` source positions, [T, S].
        source_length: source tokens, the end-of-sentence token included (≥ 1).
    """
    weights = attention[:, : max(source_length - 1, 1)]
    sources = weights.argmax(axis=1)
    best = np.take_along_axis(weights, sources[:, None], axis=1)[:, 0]
    return tuple(map(AlignedToken, sources.tolist(), best.tolist()))


def coverage_penalty(attention_sum: npt.NDArray[np.floating[Any]], source_length: int) -> float:
    """How much of the source is left untranslated: 0 where nothing is, else less.

    Wu et al. 2016, https://arxiv.org/abs/1609.08144 (14), without its factor: the sum over the source tokens, the
    end-of-sentence token included, of the logarithm of their coverage, at most 1.

    Args:
        attention_sum: attention weights added up over the target tokens, [S] with S ≥ `source_length`.
        source_length: source tokens, the end-of-sentence token included.
    """
    coverage = attention_sum[:source_length].astype(np.float64)
    return float(np.log(coverage.clip(LEAST_COVERAGE, 1.0)).sum())
