"""Beam search, as in Hugging Face's generate (https://huggingface.co/docs/transformers/main_classes/text_generation).

A step finds the 2 * beam_size best continuations. A continuation that ends the sentence enters the pool of ended
hypotheses, if it is among the first beam_size. The beam_size best of the others continue. `patience` (Kasai et al.
2022, https://arxiv.org/abs/2204.05424) multiplies the size of the pool.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import Generic, TypeVar

from translane_server.core.arrays import FloatArray, IntArray
from translane_server.engine.options import DecodingOptions

Ended = TypeVar("Ended")
# number of the beam, its next token, its score with that token, and the token's natural log-probability
Continuation = tuple[int, int, float, float]

_MOST_EXPONENT = 700.0  # exp() of a much larger exponent overflows a float64


def best_continuations(
    rows: Sequence[int],
    totals: Sequence[float],
    token_ids: IntArray,
    scores: FloatArray,
    log_probs: FloatArray,
    *,
    beam_size: int,
    eos: int,
    all_end: bool,
) -> tuple[list[Continuation], list[Continuation]]:
    """Choose the best continuations of the B beams of a sentence.

    The candidates of each beam are sorted. The function merges them, and reads only as many as it needs. The beam with
    the lower number comes first between equal scores.

    Args:
        rows: the row of each beam, [B].
        totals: the score of each beam, [B].
        token_ids: candidates of each row, best first, [n, K].
        scores: the score that each candidate adds to its beam, [n, K]; -inf is banned.
        log_probs: natural log-probabilities of the candidates, [n, K].
        beam_size: maximum number of continuations that do not end.
        eos: the end-of-sentence id, which occurs at most once in a row.
        all_end: whether all continuations end, because they have the maximum length.

    Returns:
        The continuations that do not end, and those that do, both best first.
    """
    going: list[Continuation] = []
    ending: list[Continuation] = []
    token_at, score_at, width = token_ids.item, scores.item, token_ids.shape[1]
    columns = [0] * len(rows)  # each beam's next candidate
    heads = [total + score_at(row, 0) for row, total in zip(rows, totals, strict=True)]  # and the beam's score with it
    for rank in range(2 * beam_size):
        score = max(heads)
        if score == -math.inf:
            break
        beam = heads.index(score)
        row, column = rows[beam], columns[beam]
        token = token_at(row, column)
        if token != eos and not all_end:
            going.append((beam, token, score, log_probs.item(row, column)))
            if len(going) == beam_size:
                break
        elif rank < beam_size:
            ending.append((beam, token, score, log_probs.item(row, column)))
        columns[beam] = column = column + 1
        heads[beam] = totals[beam] + score_at(row, column) if column < width else -math.inf
    return going, ending


class HypothesisPool(Generic[Ended]):
    """The best ended hypotheses of a sentence, best first. It holds max(1, round(patience * beam_size))."""

    def __init__(self, options: DecodingOptions) -> None:
        self._options = options
        self.capacity = max(1, round(options.patience * options.beam_size))
        self.scores: list[float] = []  # negative scores, in ascending order
        self.hypotheses: list[Ended] = []

    @property
    def is_full(self) -> bool:
        """Whether the pool has reached its capacity."""
        return len(self.hypotheses) >= self.capacity

    def normalise(self, score: float, length: int) -> float:
        """The score for ranking a hypothesis of `length` generated tokens, whose log-probabilities sum to `score`."""
        exponent = self._options.length_penalty * math.log(length)
        return score / math.exp(min(max(exponent, -_MOST_EXPONENT), _MOST_EXPONENT))

    def accepts(self, score: float) -> bool:
        """Whether `add` would keep a hypothesis of this normalised score."""
        return not self.is_full or score > -self.scores[-1]

    def add(self, score: float, hypothesis: Ended) -> None:
        """Add a hypothesis by its normalised score. Earlier hypotheses come first between equal scores."""
        place = bisect.bisect_right(self.scores, -score)
        self.scores.insert(place, -score)
        self.hypotheses.insert(place, hypothesis)
        del self.scores[self.capacity :], self.hypotheses[self.capacity :]

    def is_final(self, best_live_score: float, length: int) -> bool:
        """Whether the search is over. The best live hypothesis has this score, and `length` generated tokens."""
        if not self.is_full:
            return False
        return self._options.early_stopping or not self.normalise(best_live_score, length) > -self.scores[-1]
