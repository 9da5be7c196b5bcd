"""Beam search with the semantics of Hugging Face's generate.

https://huggingface.co/docs/transformers/main_classes/text_generation: of the 2 * beam_size best continuations, those
among the first beam_size that end the sentence go to the pool of ended hypotheses, and the beam_size best that do not
end it go on. `patience` (Kasai et al. 2022, https://arxiv.org/abs/2204.05424) multiplies the size of the pool.
"""

from __future__ import annotations

import bisect
import math
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from translane_server.backend import IntArray
from translane_server.options import DecodingOptions

Ended = TypeVar("Ended")

_MOST_EXPONENT = 700.0  # e to its power is still a float64; scores beyond are all the same, and order does not matter


class Continuations(NamedTuple):
    """The C best continuations of G sentences, best first, all [G, C].

    `beams` continues which beam, with the candidate in which of its `columns`, at which total score: -inf where there
    are fewer than C.
    """

    beams: IntArray
    columns: IntArray
    scores: npt.NDArray[np.float64]


def best_continuations(
    beam_scores: npt.NDArray[np.float64], candidate_scores: npt.NDArray[np.floating], count: int
) -> Continuations:
    """Choose among all candidates of all beams of a sentence.

    Args:
        beam_scores: total score of each beam, -inf where there is none, [G, B].
        candidate_scores: score of each beam's candidates, [G, B, K].
        count: C, how many to choose; at most B * K.
    """
    groups, beams, columns = candidate_scores.shape
    totals = (beam_scores[:, :, None] + candidate_scores).reshape(groups, beams * columns)
    best = np.argsort(-totals, axis=1, kind="stable")[:, :count]
    return Continuations(best // columns, best % columns, np.take_along_axis(totals, best, axis=1))


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
