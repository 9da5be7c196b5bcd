"""Finds the language of a text, for requests whose source language is ``auto``.

The model is that of py3langid, https://github.com/adbar/py3langid: a naive Bayes classifier over byte n-grams (Lui and
Baldwin, 2012, https://aclanthology.org/P12-3005/). It knows 139 languages.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import cache
from typing import Any

from translane_server.core.budget import UNLIMITED, Budget
from translane_server.core.errors import FieldViolation, InvalidRequestError
from translane_server.text.language_tags import AUTO, language_of, lookup

# How much of a text is looked at [characters].
LOOKED_AT = 1000


@cache
def can_identify() -> bool:
    """Whether py3langid is installed. The page asks every two seconds, and the answer takes a look at the disk."""
    return importlib.util.find_spec("py3langid") is not None


class LanguageIdentifier:
    """Finds the languages of texts. Loading it takes a second, and any thread may use it.

    Raises:
        InvalidRequestError: py3langid is not installed.
    """

    def __init__(self) -> None:
        try:
            from py3langid import langid  # an extra, which takes a second
        except ImportError:
            problem = f'"{AUTO}" needs the extra translane[language-id], which is not installed on this server'
            raise InvalidRequestError(FieldViolation("source_language", problem)) from None
        self._model: Any = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE)

    def find(self, texts: Sequence[str], candidates: Sequence[str], budget: Budget = UNLIMITED) -> list[str]:
        """Return the most probable of the tags `candidates` for each text; the first one for a text without letters.

        Of candidates that differ in script or region only, the one that a bare tag means is returned (see `lookup`), or
        else the first one. The first one is also returned if the model knows none of the candidates.

        Raises:
            OverBudgetError, WorkEndedError: see `Budget.check`, which is called between the texts.
        """
        tags: dict[str, list[str]] = {}
        for tag in candidates:
            tags.setdefault(language_of(tag), []).append(tag)
        by_language = {language: lookup(language, same) or same[0] for language, same in tags.items()}
        return [self._find(text[:LOOKED_AT], by_language, candidates[0], budget) for text in texts]

    def _find(self, text: str, by_language: dict[str, str], default: str, budget: Budget) -> str:
        budget.check()
        if not any(map(str.isalpha, text)):
            return default
        ranked = (language_of(label) for label, _ in self._model.rank(text))
        return next((by_language[language] for language in ranked if language in by_language), default)
