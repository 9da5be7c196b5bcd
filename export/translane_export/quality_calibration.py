"""Calibrates the estimated quality of a model: translates parallel text, and fits the estimates to chrF.

One half of the sentences is fitted, and the other half shows how good the estimates are. `docs/quality.md` has
figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.chrf import CHRF

from translane_export.checks.running import Log, decode_greedily
from translane_export.core.errors import ExportError
from translane_export.train.data import SentencePair, read_pairs
from translane_server.bundle.bundle import Bundle
from translane_server.bundle.manifest import QualityEstimation
from translane_server.core.errors import StartupError
from translane_server.core.quality import UNCALIBRATED, Calibration, estimated_quality, log_odds
from translane_server.translation.languages import LanguagePair

MOST_SENTENCES = 4_000
FEWEST_SENTENCES = 100

_MOST_UPDATES = 100
_HALVINGS = 30  # of an update that goes too far
_CONVERGED = 1e-9

_Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class RatedSentences:
    """The translations of N sentences: the natural log-probabilities of their tokens, and chrF, 0 … 1, [N]."""

    log_probs: Sequence[Sequence[float]]
    chrf: _Numbers

    def part(self, start: int) -> RatedSentences:
        """Every second sentence, from `start` on."""
        return RatedSentences(self.log_probs[start::2], self.chrf[start::2])

    def estimates(self, calibration: Calibration) -> _Numbers:
        """The estimated quality of each translation, [N]."""
        return np.array([estimated_quality(each, calibration) for each in self.log_probs])


def read_quality_data(path: Path) -> tuple[SentencePair, ...]:
    """Return at most `MOST_SENTENCES` pairs of a TSV file, gzipped or not, evenly spaced over the file.

    Raises:
        ExportError: the file cannot be read, has a line that is no pair, or has too few lines.
    """
    pairs = read_pairs(path, "--quality-data")
    _check_count(len(pairs))
    places = np.linspace(0, len(pairs), min(len(pairs), MOST_SENTENCES), endpoint=False).astype(int)
    return tuple(pairs[place] for place in places.tolist())


def calibrate(
    bundle: Bundle, languages: LanguagePair, pairs: Sequence[SentencePair], threads: int, log: Log
) -> QualityEstimation | None:
    """Return the calibration of a bundle; None if its probabilities do not rise with chrF.

    Raises:
        ExportError: the model does not run, too few sources fit its limits, or the translations do not differ.
    """
    log(f"calibrating the estimated quality with {len(pairs):,} sentences")
    try:
        rated = rate(bundle, languages, pairs, threads)
    except StartupError as error:
        raise ExportError(f"the exported model does not run: {error}") from error
    _check_count(len(rated.log_probs))
    _check_variety(rated)
    fitted, tested = rated.part(0), rated.part(1)
    calibration = fit(fitted)
    if calibration is None:
        log("the model's probabilities do not rise with chrF on --quality-data; no calibration is stored")
        return None
    estimates = tested.estimates(calibration)
    found = QualityEstimation(
        weight=calibration.weight,
        bias=calibration.bias,
        fitted=len(fitted.chrf),
        tested=len(tested.chrf),
        correlation=correlation(estimates, tested.chrf),
        mean_error=float(np.abs(estimates - tested.chrf).mean()),
    )
    log(
        f"estimated quality: on {found.tested:,} other sentences its correlation with chrF is {found.correlation:.2f},"
        f" and its mean error {found.mean_error:.2f}"
    )
    return found


def rate(bundle: Bundle, languages: LanguagePair, pairs: Sequence[SentencePair], threads: int) -> RatedSentences:
    """Translate the sources greedily, and compare the translations with the references.

    A source without tokens, or with more than the model takes, is left out.

    Raises:
        ExportError: decoding fails.
        BundleError: the bundle does not load.
    """
    most = bundle.manifest.limits.source_tokens
    encoded = zip(pairs, languages.encode([pair.source for pair in pairs]), strict=True)
    kept = [(pair.target, ids) for pair, ids in encoded if 0 < len(ids) <= most]
    forced, metric = languages.forced_ids, CHRF()
    found = decode_greedily(bundle, [ids for _, ids in kept], forced, threads, scores=True)
    texts = languages.tokenizer.decode([each.token_ids for each in found])
    scores = [
        metric.sentence_score(text, [reference]).score / 100 for text, (reference, _) in zip(texts, kept, strict=True)
    ]
    return RatedSentences([each.token_log_probs[len(forced) :] for each in found], np.array(scores))


def fit(sentences: RatedSentences) -> Calibration | None:
    """Return the calibration whose estimates fit chrF best; None if the estimates would fall as probabilities rise.

    The weight w and the bias b minimise the cross-entropy of chrF and estimates, by Newton's method. The penalty
    ((w - 1)² + b²) / 2 keeps few sentences from moving far from the mean probability itself.
    """
    odds = np.array([log_odds(each) for each in sentences.log_probs])
    inputs = np.stack([odds, np.ones_like(odds)], axis=1)  # [N, 2]
    start = np.array(UNCALIBRATED)

    def loss(parameters: _Numbers) -> float:
        raw = inputs @ parameters
        return float((np.logaddexp(0, raw) - sentences.chrf * raw).sum() + ((parameters - start) ** 2).sum() / 2)

    parameters = start
    for _ in range(_MOST_UPDATES):
        estimates = 1 / (1 + np.exp(-inputs @ parameters))
        gradient = inputs.T @ (estimates - sentences.chrf) + parameters - start
        curvature = (inputs * (estimates * (1 - estimates))[:, None]).T @ inputs + np.eye(2)
        update = np.linalg.solve(curvature, gradient)
        halvings = 0
        while loss(parameters - update) > loss(parameters) and halvings < _HALVINGS:
            update, halvings = update / 2, halvings + 1
        parameters = parameters - update
        if np.abs(update).max() < _CONVERGED:
            break
    weight, bias = (float(each) for each in parameters)
    return Calibration(weight, bias) if weight > 0 else None


def correlation(one: _Numbers, other: _Numbers) -> float:
    """Pearson's correlation; 0 if either is constant."""
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return 0.0
    return float(np.clip(np.corrcoef(one, other)[0, 1], -1, 1))


def _check_variety(rated: RatedSentences) -> None:
    for what, values in (
        ("are equally probable", np.array([log_odds(each) for each in rated.log_probs])),
        ("have the same chrF", rated.chrf),
    ):
        if np.ptp(values) == 0:
            raise ExportError(
                f"--quality-data: the translations of its {len(values)} sentences all {what}, and a calibration needs"
                " sentences that differ"
            )


def _check_count(count: int) -> None:
    if count < FEWEST_SENTENCES:
        raise ExportError(
            f"--quality-data has {count} sentences that the model can take, and a calibration needs at least"
            f" {FEWEST_SENTENCES}"
        )
