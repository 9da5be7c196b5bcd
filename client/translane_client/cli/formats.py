"""The formats of output: columns, n-best lines, JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from translane.results import Hypothesis, StreamedTranslation, Translation


class TranslationFormat:
    """The format of translations that a command's flags select.

    Columns have tabs between: score, quality, text, tokens, alignment. N-best lines are one for each hypothesis, with
    ` ||| ` between number of the text from 0, text, score, quality, tokens and alignment. JSON is one object for each
    text.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._flags = arguments
        self._nbest = arguments.nbest is not None or (arguments.num_hypotheses or 1) > 1

    @property
    def is_text_alone(self) -> bool:
        """Whether a translation is written as its text and nothing else."""
        flags = self._flags
        return not any((flags.json, self._nbest, flags.scores, flags.quality, flags.tokens, flags.alignment))

    @property
    def is_text_or_json(self) -> bool:
        """Whether the format suits a stream."""
        return not self._nbest and (bool(self._flags.json) or self.is_text_alone)

    def lines(self, index: int, translation: Translation) -> Iterator[str]:
        """The lines of the translation of text `index`."""
        if self._flags.json:
            about = {"text": translation.text, "score": translation.score, "finish_reason": translation.finish_reason}
            yield to_json({**about, **asdict(translation)})
        elif self._nbest:
            for each in translation.hypotheses:
                estimate, details = self._beside(each)
                yield " ||| ".join([str(index), each.text, number(each.score), *estimate, *details])
        else:
            best = translation.hypotheses[0]
            estimate, details = self._beside(best)
            yield "\t".join([*([number(best.score)] if self._flags.scores else []), *estimate, best.text, *details])

    def _beside(self, hypothesis: Hypothesis) -> tuple[list[str], list[str]]:
        """The fields before and after the text that the flags ask for."""
        estimate, details = list[str](), list[str]()
        if self._flags.quality:
            estimate.append("" if hypothesis.quality is None else f"{hypothesis.quality:.3f}")
        if self._flags.tokens:
            details.append(tokens_line(hypothesis.tokens, hypothesis.token_log_probs if self._flags.scores else ()))
        if self._flags.alignment:  # Pharaoh's format
            details.append(" ".join(f"{point.source_token}-{point.target_token}" for point in hypothesis.alignment))
        return estimate, details


def stream_json(index: int, translation: StreamedTranslation) -> str:
    """The line of JSON that ends the translation of text `index`."""
    shown = asdict(translation)
    about = {name: shown[name] for name in ("timing", "treatment", "models", "versions")}
    return to_json({"index": index, **shown["hypothesis"], **about})


def number(value: float | None) -> str:
    """A log-probability, for people and for `sort -g`; empty where the server sent none."""
    return "" if value is None else f"{value:.6f}"


def tokens_line(tokens: Sequence[str], log_probs: Sequence[float]) -> str:
    """Tokens with spaces between, each with its log-probability where `log_probs` has them."""
    if not log_probs:
        return " ".join(tokens)
    return " ".join(f"{token}:{number(each)}" for token, each in zip(tokens, log_probs, strict=False))


def to_json(value: object) -> str:
    """One line of JSON."""
    return json.dumps(value, ensure_ascii=False)
