"""Which translations are left out, beside those of texts that the service refuses."""

from __future__ import annotations

import math
from collections.abc import Sequence

from translane.results import FinishReason, ModelInfo, Translation
from translane_batch.records import Answer
from translane_batch.settings import BatchError, BatchSettings
from translane_server.core.errors import InvalidRequestError
from translane_server.core.quality import COPY, suspicion
from translane_server.text.language_id import LanguageIdentifier

UNENDED, LOW_QUALITY, LANGUAGE = "translation did not end", "low quality", "another language"


def languages_of(settings: BatchSettings, models: Sequence[ModelInfo]) -> tuple[str, str]:
    """Return the languages of a run, source and target: those of the settings, or of the models if they have one pair.

    A language that is not known is "".
    """
    if settings.server and settings.model:
        models = [model for model in models if model.name == settings.model]
    source = settings.source_language or _only([tag for model in models for tag in model.source_languages])
    target = settings.target_language or _only([tag for model in models for tag in model.target_languages])
    return "" if source == "auto" else source, target


def _only(tags: Sequence[str]) -> str:
    different = set(tags)
    return different.pop() if len(different) == 1 else ""


class Filters:
    """Turns translations to answers. The languages are those of `languages_of`."""

    def __init__(self, settings: BatchSettings, languages: tuple[str, str]) -> None:
        self._rules = frozenset(settings.leave_out)
        self._min_quality = settings.min_quality
        self._max_ratio = settings.max_ratio
        self._keeps = settings.keep_left_out
        self._languages = languages
        self._identifier: LanguageIdentifier | None = None
        if "language" in self._rules:
            try:
                self._identifier = LanguageIdentifier()
            except InvalidRequestError:
                message = "--leave-out language needs py3langid: install translane[language-id]"
                raise BatchError(message, exit_code=2) from None

    def answer(self, source: str, translation: Translation) -> Answer:
        """Return the answer of a source. The best translation decides; an empty one is left out in any case."""
        reason, detail = self._reason(source, translation)
        if reason and not self._keeps:
            return Answer("", reason, detail)
        text, *others = (each.text for each in translation.hypotheses)
        return Answer(text, reason, detail, tuple(others))

    def _reason(self, source: str, translation: Translation) -> tuple[str, str]:
        """Why a translation is left out, and more about the reason."""
        best = translation.hypotheses[0]
        ratio = math.inf if self._max_ratio is None else self._max_ratio
        found = suspicion(source, best.text, translation.source_tokens, len(best.tokens), ratio)
        if found and (found != COPY or "copy" in self._rules):
            return found, ""
        if "unended" in self._rules and best.finish_reason is FinishReason.MAX_LENGTH:
            return UNENDED, ""
        if self._min_quality and best.quality is not None and best.quality < self._min_quality:
            return LOW_QUALITY, f"{best.quality:.3f}"
        if self._identifier and (language := self._other_language(translation)):
            return LANGUAGE, language
        return "", ""

    def _other_language(self, translation: Translation) -> str:
        """The language of the source, if the translation is rather in it than in the target language."""
        assert self._identifier is not None
        source, target = self._languages
        if translation.treatment:
            source = translation.treatment.source_language or source
        if not source or not target:
            return ""
        (found,) = self._identifier.find([translation.text], [target, source])
        return "" if found == target else found
