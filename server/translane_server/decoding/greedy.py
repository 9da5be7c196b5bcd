"""Greedy search: the most probable token, until the sentence ends or is as long as it may be."""

from __future__ import annotations

from translane_server.backend import BoolArray, Candidates, FloatArray, Int32Array, IntArray


def choose(candidates: Candidates) -> tuple[IntArray, FloatArray | None]:
    """The next tokens of n rows, and their log-probabilities where there are any, both [n].

    Args:
        candidates: best first, [n, K].
    """
    log_probs = candidates.log_probs
    return candidates.token_ids[:, 0], None if log_probs is None else log_probs[:, 0]


def ends(token_ids: IntArray, decided: Int32Array, limit: Int32Array, eos: int) -> BoolArray:
    """Which of n rows end with these tokens, [n].

    Args:
        token_ids: the last token of each row, [n].
        decided: how many tokens each row has by that, [n].
        limit: how many it may have, [n].
        eos: the end-of-sentence id.
    """
    over: BoolArray = (token_ids == eos) | (decided >= limit)
    return over
