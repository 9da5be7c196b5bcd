"""Estimates of a translation's quality, and how well they follow chrF."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.chrf import CHRF

from translane_server.bundle import Bundle
from translane_server.local import LocalDecoder
from translane_server.options import DecodingOptions
from translane_server.quality_estimate import log_odds
from translane_server.requests.language_pairs import LanguagePairs
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions
from translane_server.sentence import Hypothesis, Sentence
from translane_server.text.tokenizer import load_tokenizer
from translane_server.vocabulary import TargetVocabulary

Numbers = NDArray[np.float64]

_ROWS = 32
_UPDATES = 30  # of Newton's method
_PENALTY = 1.0
_BINS = 10


@dataclass(frozen=True)
class Translated:
    """The best translation of a sentence, and what was known when it was decoded.

    Attributes:
        source_tokens: number of source tokens.
        best: the best hypothesis.
        text: its text.
        other_texts: texts of the other hypotheses.
        other_log_probs: token log-probabilities of the other hypotheses.
        reference: the translation to compare with.
        chrf: chrF of the text, 0 … 1.
    """

    source_tokens: int
    best: Hypothesis
    text: str
    other_texts: Sequence[str]
    other_log_probs: Sequence[Sequence[float]]
    reference: str
    chrf: float

    @property
    def probabilities(self) -> Numbers:
        """Probability of each token, [T]."""
        found: Numbers = np.exp(np.array(self.best.token_log_probs))
        return found


def similarity(text: str, reference: str) -> float:
    """The chrF of a text, 0 … 1."""
    return float(CHRF().sentence_score(text, [reference]).score) / 100


def translate(
    bundle: Bundle, pairs: Sequence[tuple[str, str]], options: DecodingOptions, threads: int
) -> list[Translated]:
    """Translate the source of each pair, and compare it with the reference."""
    manifest, tokenizer = bundle.manifest, load_tokenizer(bundle)
    sources = LanguagePairs(manifest.languages, tokenizer).default().encode([source for source, _ in pairs])
    backend = OrtBackend(
        Sessions(bundle, threads=threads),
        rows=_ROWS,
        source_capacity=max(map(len, sources)),
        target_capacity=options.max_length,
    )
    ids = manifest.special_ids
    with LocalDecoder(backend, TargetVocabulary(ids.decoder_start, ids.eos)) as decoder:
        results = decoder.decode([Sentence(source, options) for source in sources])
    translated = []
    for (_, reference), source, result in zip(pairs, sources, results, strict=True):
        best, *others = result.hypotheses
        text, *other_texts = tokenizer.decode([each.token_ids for each in result.hypotheses])
        log_probs = [each.token_log_probs for each in others]
        chrf = similarity(text, reference)
        translated.append(Translated(len(source), best, text, other_texts, log_probs, reference, chrf))
    return translated


def agreement(one: Translated) -> float:
    """The mean chrF of the other hypotheses, with the best one as their reference."""
    return float(np.mean([similarity(text, one.text) for text in one.other_texts])) if one.other_texts else 1.0


def margin(one: Translated) -> float:
    """By how much the mean log-probability of the best hypothesis is above that of the others."""
    others = [np.mean(each) for each in one.other_log_probs]
    return float(np.mean(one.best.token_log_probs) - np.mean(others)) if others else 0.0


Feature = Callable[[Translated], float]
MEAN = "mean probability"
FEATURES: Mapping[str, Feature] = {
    MEAN: lambda one: log_odds(one.best.token_log_probs),
    "geometric mean": lambda one: float(np.exp(np.mean(one.best.token_log_probs))),
    "mean log-probability": lambda one: float(np.mean(one.best.token_log_probs)),
    "least probability": lambda one: float(one.probabilities.min()),
    "deviation of probabilities": lambda one: -float(one.probabilities.std()),
    "share of tokens above 0.5": lambda one: float((one.probabilities > 0.5).mean()),
    "sum of log-probabilities": lambda one: float(np.sum(one.best.token_log_probs)),
    "probability of the end": lambda one: float(one.probabilities[-1]),
    "source tokens": lambda one: -np.log(one.source_tokens),
    "target over source tokens": lambda one: np.log(len(one.best.token_log_probs) / one.source_tokens),
    "mean attention weight": lambda one: float(np.mean([each.weight for each in one.best.alignment] or [0])),
    "source tokens attended to": lambda one: (
        len({each.source_token for each in one.best.alignment}) / one.source_tokens
    ),
}
OF_SEVERAL: Mapping[str, Feature] = {"agreement of hypotheses": agreement, "margin to other hypotheses": margin}


def columns(translated: Sequence[Translated], features: Mapping[str, Feature]) -> Numbers:
    """The values of F features of N translations, [N, F]."""
    return np.array([[feature(one) for feature in features.values()] for one in translated], float)


def scores(translated: Sequence[Translated]) -> Numbers:
    """The chrF of each translation, [N]."""
    return np.array([one.chrf for one in translated])


def logistic(inputs: Numbers, chrf: Numbers) -> Callable[[Numbers], Numbers]:
    """Fit chrF with a logistic function of features, [N, F]; return what estimates it from features."""
    mean, deviation = inputs.mean(axis=0), inputs.std(axis=0) + 1e-9

    def scaled(values: Numbers) -> Numbers:
        return np.column_stack([np.ones(len(values)), (values - mean) / deviation])

    x = scaled(inputs)
    weights, penalty = np.zeros(x.shape[1]), _PENALTY * np.diag([0.0] + [1.0] * inputs.shape[1])
    for _ in range(_UPDATES):
        estimates = 1 / (1 + np.exp(-x @ weights))
        curvature = (x * (estimates * (1 - estimates))[:, None]).T @ x + penalty
        weights = weights - np.linalg.solve(curvature, x.T @ (estimates - chrf) + penalty @ weights)
    return lambda values: 1 / (1 + np.exp(-scaled(values) @ weights))


def pearson(one: Numbers, other: Numbers) -> float:
    """Pearson's correlation; 0 if either is constant."""
    return float(np.corrcoef(one, other)[0, 1]) if np.ptp(one) and np.ptp(other) else 0.0


def spearman(one: Numbers, other: Numbers) -> float:
    """Spearman's rank correlation."""
    return pearson(_ranks(one), _ranks(other))


def kendall(one: Numbers, other: Numbers) -> float:
    """Kendall's tau-b."""
    signs = [np.sign(values[:, None] - values[None]) for values in (one, other)]
    pairs = [float((each**2).sum()) for each in signs]
    return float((signs[0] * signs[1]).sum()) / float(np.sqrt(pairs[0] * pairs[1])) if all(pairs) else 0.0


def area(estimates: Numbers, weak: NDArray[np.bool_]) -> float:
    """The area under the ROC curve: how often a weak translation has the lower estimate of a weak and a good one."""
    ranks = _ranks(-estimates)
    count = int(weak.sum())
    return float((ranks[weak].sum() - count * (count - 1) / 2) / (count * (len(weak) - count)))


def bins(estimates: Numbers, chrf: Numbers) -> Numbers:
    """Tenths of the sentences by estimate: mean estimate, mean chrF, a quarter and three quarters of chrF, [10, 4]."""
    parts = np.array_split(np.argsort(estimates, kind="stable"), _BINS)
    return np.array(
        [[estimates[part].mean(), chrf[part].mean(), *np.quantile(chrf[part], [0.25, 0.75])] for part in parts]
    )


def _ranks(values: Numbers) -> Numbers:
    """Ranks from 0; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.array(list(itertools.accumulate(counts.tolist())))
    means: Numbers = ends - (counts + 1) / 2
    return means[inverse]
