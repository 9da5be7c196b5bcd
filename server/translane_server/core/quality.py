"""The estimated quality of a translation, from the probabilities that the model gave to its tokens, and bad pairs.

The mean probability of the tokens follows the quality of a translation (Fomicheva et al. 2020,
https://aclanthology.org/2020.tacl-1.35, compare such estimates). A calibration makes a score of the mean: the score
that translations with such a mean have on average. docs/quality.md has measurements.

Some pairs of a source and a translation look like mistakes of a model by rules that need no probabilities.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, log
from typing import NamedTuple

# The estimate of a translation in which nothing was generated: nothing can be wrong.
NOTHING_GENERATED = 1.0

_LEAST = 0.001  # mean probabilities are cut to [_LEAST, 1 - _LEAST], where their log-odds are finite


class Calibration(NamedTuple):
    """Makes an estimate of a mean probability: its log-odds are `weight` (> 0) times the mean's, plus `bias`.

    The default leaves the mean probability as it is.
    """

    weight: float = 1.0
    bias: float = 0.0


UNCALIBRATED = Calibration()


def estimated_quality(log_probs: Sequence[float], calibration: Calibration = UNCALIBRATED) -> float:
    """Return the estimated quality of a translation, 0 … 1.

    `log_probs` are the natural log-probabilities of its tokens under the model, with the end-of-sentence token.
    """
    if not log_probs:
        return NOTHING_GENERATED
    return 1 / (1 + exp(-calibration.weight * log_odds(log_probs) - calibration.bias))


def log_odds(log_probs: Sequence[float]) -> float:
    """Return the log-odds of the mean probability of one token or more."""
    mean = min(max(sum(map(exp, log_probs)) / len(log_probs), _LEAST), 1 - _LEAST)
    return log(mean / (1 - mean))


def combined_quality(parts: Iterable[tuple[float, int]]) -> float:
    """Return the estimated quality of a text from the estimate and the source tokens of each of its sentences.

    Long sentences count more, as they do in scores of whole texts.
    """
    known = [(quality, max(tokens, 1)) for quality, tokens in parts]
    total = sum(tokens for _, tokens in known)
    return sum(quality * tokens for quality, tokens in known) / total if known else NOTHING_GENERATED


EMPTY, COPY, RATIO = "empty translation", "copy of the source", "lengths too different"
"""What makes a pair suspect."""


def suspicion(source: str, translation: str, source_pieces: int, translation_pieces: int, max_ratio: float) -> str:
    """Return the first rule that makes a pair suspect; "" if none does.

    The pieces of a text count with the end of the sentence. One side may have `max_ratio` times as many as the other.
    """
    if not translation:
        return EMPTY
    if translation == source:
        return COPY
    sizes = (source_pieces, translation_pieces)
    return RATIO if max(sizes) > max_ratio * min(sizes) else ""
