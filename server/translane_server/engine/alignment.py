"""Alignment and coverage, computed from cross-attention weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from translane_server.core.arrays import FloatArray
from translane_server.engine.sentence import AlignedToken

# Least coverage of a source token, so that its logarithm is finite.
LEAST_COVERAGE = 1e-9


def aligned_tokens(attention: FloatArray, source_length: int) -> tuple[AlignedToken, ...]:
    """The source token to which each target token attends most; the first one between equal weights.

    The source's end-of-sentence token is ignored unless it is the only token: target tokens without a counterpart
    attend to it.

    Args:
        attention: attention weights of T target tokens, [T, S] with S ≥ `source_length`.
        source_length: number of source tokens, with the end-of-sentence token (≥ 1).

    Returns:
        T aligned tokens.
    """
    weights = attention[:, : max(source_length - 1, 1)]
    sources = weights.argmax(axis=1)
    best = np.take_along_axis(weights, sources[:, None], axis=1)[:, 0]
    return tuple(map(AlignedToken, sources.tolist(), best.tolist()))


def coverage_penalty(attention_sum: npt.NDArray[np.floating[Any]], source_length: int) -> float:
    """The coverage penalty: 0 if the whole source is covered, and negative otherwise.

    Wu et al. 2016, https://arxiv.org/abs/1609.08144 (14), without the factor: the sum of log(min(coverage, 1)) over all
    source tokens.

    Args:
        attention_sum: sum of the attention weights over the target tokens, [S] with S ≥ `source_length`.
        source_length: number of source tokens, with the end-of-sentence token.
    """
    coverage = attention_sum[:source_length].astype(np.float64)
    return float(np.log(coverage.clip(LEAST_COVERAGE, 1.0)).sum())
