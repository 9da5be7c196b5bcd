"""The formats of output: columns, n-best lines, JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from translane.results import AlignmentPoint, Hypothesis, Score, StreamedTranslation, Translation


class TranslationFormat:
    """The format of translations that a command's flags select.

    Columns have tabs between: score, quality, text, tokens, alignment. N-best lines are one for each hypothesis, with
    ` ||| ` between number of the text from 0, text, score, quality, tokens and alignment. JSON is one object for each
    text.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._json = bool(arguments.json)
        self._nbest = arguments.nbest is not None or (arguments.num_hypotheses or 1) > 1
        self._scores = bool(arguments.scores)
        self._quality = bool(arguments.quality)
        self._tokens = bool(arguments.tokens)
        self._alignment = bool(arguments.alignment)

    @property
    def is_text_alone(self) -> bool:
        """Whether a translation is written as its text and nothing else."""
        return not (self._json or self._nbest or self._scores or self._quality or self._tokens or self._alignment)

    @property
    def is_text_or_json(self) -> bool:
        """Whether the format suits a stream."""
        return not self._nbest and (self._json or self.is_text_alone)

    def lines(self, index: int, translation: Translation) -> Iterator[str]:
        """The lines of the translation of text `index`."""
        if self._json:
            yield to_json({"text": translation.text, "score": translation.score, **_shown(translation)})
        elif self._nbest:
            for hypothesis in translation.hypotheses:
                fields = [str(index), hypothesis.text, number(hypothesis.score)]
                yield " ||| ".join([*fields, *self._estimate(hypothesis), *self._details(hypothesis)])
        else:
            best = translation.hypotheses[0]
            score = [number(best.score)] if self._scores else []
            yield "\t".join([*score, *self._estimate(best), best.text, *self._details(best)])

    def _estimate(self, hypothesis: Hypothesis) -> Iterator[str]:
        if self._quality:
            yield "" if hypothesis.quality is None else f"{hypothesis.quality:.3f}"

    def _details(self, hypothesis: Hypothesis) -> Iterator[str]:
        if self._tokens:
            scores = hypothesis.token_log_probs if self._scores else ()
            yield tokens_line(hypothesis.tokens, scores)
        if self._alignment:
            yield alignment_line(hypothesis.alignment)


def _shown(translation: Translation) -> dict[str, object]:
    return {"finish_reason": translation.finish_reason, **asdict(translation)}


def delta_json(index: int, delta: str) -> str:
    """The line of JSON for a delta of the translation of text `index`."""
    return to_json({"index": index, "delta": delta})


def stream_json(index: int, translation: StreamedTranslation) -> str:
    """The line of JSON that ends the translation of text `index`."""
    timing = asdict(translation.timing) if translation.timing else None
    treatment = asdict(translation.treatment) if translation.treatment else None
    about = {"timing": timing, "treatment": treatment, "models": translation.models}
    return to_json({"index": index, **asdict(translation.hypothesis), **about})


def score_json(score: Score) -> str:
    """The line of JSON for a score."""
    return to_json({"total_log_prob": score.total_log_prob, "mean_log_prob": score.mean_log_prob, **asdict(score)})


def number(value: float | None) -> str:
    """A log-probability, for people and for `sort -g`; empty where the server sent none."""
    return "" if value is None else f"{value:.6f}"


def tokens_line(tokens: Sequence[str], log_probs: Sequence[float]) -> str:
    """Tokens with spaces between, each with its log-probability where `log_probs` has them."""
    if not log_probs:
        return " ".join(tokens)
    return " ".join(f"{token}:{number(each)}" for token, each in zip(tokens, log_probs, strict=False))


def alignment_line(points: Iterable[AlignmentPoint]) -> str:
    """The alignment in Pharaoh's format: source token, hyphen, target token."""
    return " ".join(f"{point.source_token}-{point.target_token}" for point in points)


def to_json(value: object) -> str:
    """One line of JSON."""
    return json.dumps(value, ensure_ascii=False)
