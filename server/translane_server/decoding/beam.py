"""Beam search with the semantics of Hugging Face's generate.

https://huggingface.co/docs/transformers/main_classes/text_generation: of the 2 * beam_size best continuations, those
among the first beam_size that end the sentence go to the pool of ended hypotheses, and the beam_size best that do not
end it go on. `patience` (Kasai et al. 2022, https://arxiv.org/abs/2204.05424) multiplies the size of the pool.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import Generic, TypeVar

from translane_server.arrays import FloatArray, IntArray
from translane_server.options import DecodingOptions

Ended = TypeVar("Ended")
# number of the beam, its next token, the score with it, and the token's natural log-probability
Continuation = tuple[int, int, float, float]

_MOST_EXPONENT = 700.0  # e to its power is still a float64; scores beyond are all the same, and order does not matter


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
    """Choose among all candidates of all beams of a sentence.

    The candidates of each beam are in order, so the best of all come from merging them, and no more are looked at than
    it takes. Of equal ones the first beam's comes first.

    Args:
        rows: of the beams, best first.
        totals: scores of the beams.
        token_ids: candidates of each row, best first, [n, K].
        scores: what they add to a beam's score, [n, K]; -inf is banned.
        log_probs: their natural log-probabilities, [n, K].
        beam_size: how many go on at most.
        eos: the end-of-sentence id, which is among a row's candidates once at most.
        all_end: whether all that is chosen ends, because it is as long as it may be.

    Returns:
        What goes on, and what ends; both best first.
    """
    going: list[Continuation] = []
    ending: list[Continuation] = []
    token_at, score_at, width = token_ids.item, scores.item, token_ids.shape[1]
    columns = [0] * len(rows)  # each beam's best candidate that is not chosen
    heads = [total + score_at(row, 0) for row, total in zip(rows, totals, strict=True)]  # and the score with it
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
    """The best ended hypotheses of a sentence, best first: at most patience * beam_size of them, and at least one."""

    def __init__(self, options: DecodingOptions) -> None:
        self._options = options
        self.capacity = max(1, round(options.patience * options.beam_size))
        self.scores: list[float] = []  # ascending in their negatives
        self.hypotheses: list[Ended] = []

    @property
    def is_full(self) -> bool:
        """Whether another hypothesis would push one out."""
        return len(self.hypotheses) >= self.capacity

    def normalise(self, score: float, length: int) -> float:
        """What a hypothesis of `length` generated tokens that add up to `score` is ranked by."""
        exponent = self._options.length_penalty * math.log(length)
        return score / math.exp(min(max(exponent, -_MOST_EXPONENT), _MOST_EXPONENT))

    def accepts(self, score: float) -> bool:
        """Whether a hypothesis ranked by `score` would get in."""
        return not self.is_full or score > -self.scores[-1]

    def add(self, score: float, hypothesis: Ended) -> None:
        """Take in a hypothesis ranked by `score`; of equals, the one that came first is the better one."""
        place = bisect.bisect_right(self.scores, -score)
        self.scores.insert(place, -score)
        self.hypotheses.insert(place, hypothesis)
        del self.scores[self.capacity :], self.hypotheses[self.capacity :]

    def is_final(self, best_live_score: float, length: int) -> bool:
        """Whether the search is over: live hypotheses have `length` generated tokens and score that at best."""
        if not self.is_full:
            return False
        return self._options.early_stopping or not self.normalise(best_live_score, length) > -self.scores[-1]
