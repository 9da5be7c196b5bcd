"""Finds a third language, through which two models translate what no model translates directly."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from translane_server.bundle.manifest import Languages
from translane_server.models.choice import has_pair, names, sources_of, targets_of
from translane_server.models.served_model import ServedModel
from translane_server.text.language_tags import UNDETERMINED, language_of
from translane_server.translation.routing import ThroughPivot

# Most models have English on one side, and more text to learn from.
_PREFERRED = "en"


def find_pivot(models: Iterable[ServedModel], source: str, target: str) -> ThroughPivot | None:
    """Return the models that translate `source` to `target` through a third language; None if there are none.

    English is taken first, then the other languages in the order of the models. Where several models translate a step,
    the first one is taken. Models of undetermined languages translate no step, because nobody knows what they read.

    Args:
        models: the models of a server, in order.
        source: tag of a request.
        target: tag of a request.
    """
    known = list(models)
    seconds = _with_target(known, target)
    if not seconds or not source or language_of(source) == language_of(target):
        return None
    firsts = [model for model in known if names(_languages(model).source, source)]
    steps = [(first, language) for first in firsts for language in targets_of(_languages(first), source)]
    steps.sort(key=lambda step: language_of(step[1]) != _PREFERRED)
    for first, language in steps:
        if second := _reader(seconds, first, language, target):
            return ThroughPivot(first, second, language)
    return None


def sources_through(models: Iterable[ServedModel], target: str, direct: Container[str]) -> list[str]:
    """Return the languages from which `find_pivot` finds a way to `target`, by the tags of their models.

    Args:
        models: the models of a server, in order.
        target: tag of a request.
        direct: languages that need no way. Models of these alone are left out, because the search takes long.
    """
    known = list(models)
    seconds = _with_target(known, target)
    found: dict[str, None] = {}
    for first in known:
        if not seconds or all(tag in direct for tag in _languages(first).source):
            continue
        for language in _languages(first).target:
            if _reader(seconds, first, language, target):
                found |= dict.fromkeys(sources_of(_languages(first), language))
    of_target = language_of(target)
    return [tag for tag in found if tag not in direct and tag != UNDETERMINED and language_of(tag) != of_target]


def _with_target(models: Sequence[ServedModel], target: str) -> list[ServedModel]:
    return [model for model in models if names(_languages(model).target, target)]


def _reader(seconds: Sequence[ServedModel], first: ServedModel, language: str, target: str) -> ServedModel | None:
    """Return the first of `seconds` that translates `language`, which the model `first` writes, to `target`."""
    for second in seconds:
        languages = _languages(second)
        reads = second is not first and language != UNDETERMINED and names(languages.source, language)
        if reads and has_pair(languages, language, target):
            return second
    return None


def _languages(model: ServedModel) -> Languages:
    return model.description.manifest.languages
