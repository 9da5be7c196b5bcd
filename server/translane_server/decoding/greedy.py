"""Greedy search: the most probable token, until the sentence ends or is as long as it may be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from translane_server.backend import Candidates, FloatArray, Int32Array, IntArray


@dataclass(frozen=True, slots=True)
class GreedyChoice:
    """For n rows: the chosen tokens, their log-probabilities where there are any, and what ends a row, all [n]."""

    token_ids: IntArray
    log_probs: FloatArray | None
    ended: npt.NDArray[np.bool_]
    at_max_length: npt.NDArray[np.bool_]


def choose(candidates: Candidates, generated: Int32Array, max_length: Int32Array, eos: int) -> GreedyChoice:
    """Choose the next token of n rows.

    Args:
        candidates: best first, [n, K].
        generated: how many tokens each row has generated before this one, [n].
        max_length: how many each row may generate, [n].
        eos: the end-of-sentence id.
    """
    token_ids = candidates.token_ids[:, 0]
    return GreedyChoice(
        token_ids=token_ids,
        log_probs=None if candidates.log_probs is None else candidates.log_probs[:, 0],
        ended=token_ids == eos,
        at_max_length=generated + 1 >= max_length,
    )
