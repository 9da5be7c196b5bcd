"""Beam search with the semantics of Hugging Face's generate.

https://huggingface.co/docs/transformers/main_classes/text_generation: of the 2 * beam_size best continuations, those
among the first beam_size that end the sentence go to the pool of ended hypotheses, and the beam_size best that do not
end it go on. `patience` (Kasai et al. 2022, https://arxiv.org/abs/2204.05424) multiplies the size of the pool.
"""

from __future__ import annotations

import bisect
import math
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from translane_server.backend import IntArray
from translane_server.options import DecodingOptions

Ended = TypeVar("Ended")

_MOST_EXPONENT = 700.0  # e to its power is still a float64; scores beyond are all the same, and order does not matter


def best_continuations(total_scores: npt.NDArray[np.float64], count: int) -> IntArray:
    """Choose among all candidates of all beams of a sentence, for G sentences.

    Args:
        total_scores: of each sentence with each candidate of each beam, [G, N]; -inf where there is none.
        count: C, how many to choose; at most N.

    Returns:
        The numbers of the candidates, best first and of equal ones the first one first, [G, C].
    """
    choices: IntArray = (-total_scores).argsort(axis=1, kind="stable")[:, :count]
    return choices


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
