"""Finds a third language, through which two models translate what no model translates directly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from translane_server.manifest import Languages
from translane_server.models.choice import has_pair, names_language
from translane_server.models.served_model import ServedModel
from translane_server.text.language_tags import UNDETERMINED, lookup, standard_tag

# Most models have English on one side, and more text to learn from.
_PREFERRED = "en"


@dataclass(frozen=True)
class Pivot:
    """Two models that translate one after the other.

    Attributes:
        first: translates the source language to `language`.
        second: translates `language` to the target language.
        language: the language in the middle, by the tag that `first` has for it.
    """

    first: ServedModel
    second: ServedModel
    language: str

    @property
    def name(self) -> str:
        """The names of both models, as a response has them."""
        return f"{self.first.name} + {self.second.name}"


def find_pivot(models: Iterable[ServedModel], source: str, target: str) -> Pivot | None:
    """Return the models that translate `source` to `target` through a third language; None if there are none.

    English is taken first, then the other languages in the order of the models. Where several models translate a step,
    the first one is taken. Models of undetermined languages translate no step, because nobody knows what they read.

    Args:
        models: the models of a server, in order.
        source: tag of a request.
        target: tag of a request.
    """
    known = list(models)
    firsts = [model for model in known if names_language(source, _languages(model).source)]
    seconds = [model for model in known if names_language(target, _languages(model).target)]
    if not seconds or lookup(target, [source]) or lookup(source, [target]):
        return None
    steps = [(first, language) for first in firsts for language in _between(first, source)]
    steps.sort(key=lambda step: standard_tag(step[1]).partition("-")[0] != _PREFERRED)
    for first, language in steps:
        for second in seconds:
            reads = names_language(language, _languages(second).source)
            if second is not first and reads and has_pair(_languages(second), language, target):
                return Pivot(first, second, language)
    return None


def _between(model: ServedModel, source: str) -> Sequence[str]:
    """Return the languages that `model` translates `source` to."""
    languages = _languages(model)
    return [tag for tag in languages.target if tag != UNDETERMINED and has_pair(languages, source, tag)]


def _languages(model: ServedModel) -> Languages:
    return model.description.manifest.languages
