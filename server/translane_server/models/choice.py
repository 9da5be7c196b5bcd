"""Which model answers a request: by its name, by the languages, or two models one after the other."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import islice

from translane_server.bundle.manifest import Languages
from translane_server.core.errors import FieldViolation, InvalidRequestError, ModelNotFoundError
from translane_server.core.terminal import listed, shown
from translane_server.models.served_model import ServedModel
from translane_server.text.language_tags import UNDETERMINED, language_of, lookup, meaning
from translane_server.translation.several_models import ThroughPivot

# Most models have English on one side, and more text to learn from.
_PREFERRED = "en"
_REMEMBERED_PAIRS = 1024


class Choice:
    """Chooses among the models of a server, as they are now. Lengths of names and tags must be checked before.

    With `pivots`, two models may translate one after the other.
    """

    def __init__(self, models: Mapping[str, ServedModel], *, pivots: bool = True) -> None:
        self._models = models
        self._languages = {name: model.description.manifest.languages for name, model in models.items()}
        self._only = next(iter(models.values())) if len(models) == 1 else None
        self._pivots = pivots
        remembered = lru_cache(_REMEMBERED_PAIRS)
        self._by_languages: Callable[[str, str], list[str]] = remembered(
            lambda source, target: with_pair(self._languages, source, target)
        )
        self.pivot: Callable[[str, str], ThroughPivot | None] = remembered(self._find_pivot)
        self._sources_of: Callable[[str], tuple[str, ...]] = remembered(self._find_sources)

    def model(self, name: str, source_language: str, target_language: str) -> ServedModel:
        """Return the model of a request: by name; without a name, the only model that has the language pair.

        An empty tag stands for a model's only language on that side.

        Raises:
            ModelNotFoundError: no model has the name, or the language pair.
            InvalidRequestError: several models have the language pair.
        """
        if name:
            if model := self._models.get(name):
                return model
            raise no_such_model(name, self._models)
        if self._only:  # it says itself what is wrong with the languages
            return self._only
        found = self._by_languages(source_language, target_language)
        if len(found) == 1:
            return self._models[found[0]]
        if found:
            raise several_models(found)
        raise no_model_for(source_language, target_language, self._models)

    def source_languages(self, name: str, target_language: str) -> Sequence[str]:
        """Return the languages that can be translated to `target_language`, for a request whose source is ``auto``.

        Without a name they are those of all models, and of two models one after the other.

        Raises:
            ModelNotFoundError: no model has the name, or the target language.
        """
        if name or self._only:
            languages = self._languages[self.model(name, "", "").name]
            # Where no language fits, the model says what is wrong with the target language.
            return sources_of(languages, target_language) or languages.source
        if found := self._sources_of(target_language):
            return found
        raise no_model_to(target_language, self._models)

    def _find_pivot(self, source: str, target: str) -> ThroughPivot | None:
        """Return the models that translate `source` to `target` through a third language; None if there are none.

        English is taken first, then the other languages in the order of the models. Where several models translate a
        step, the first one is taken. Models of undetermined languages translate no step, because nobody knows what they
        read.
        """
        if not (self._pivots and source) or language_of(source) == language_of(target):
            return None
        second_of = self._seconds(target)
        firsts = [name for name, languages in self._languages.items() if names(languages.source, source)]
        steps = [(first, between) for first in firsts for _, between in _pairs(self._languages[first], source, None)]
        steps.sort(key=lambda step: language_of(step[1]) != _PREFERRED)
        for first, between in steps:
            if second := second_of(first, between):
                return ThroughPivot(self._models[first], self._models[second], between)
        return None

    def _find_sources(self, target: str) -> tuple[str, ...]:
        direct = [tag for languages in self._languages.values() for tag in sources_of(languages, target)]
        found = {tag: None for tag in direct if tag != UNDETERMINED}  # in order, each tag once
        if self._pivots:
            found |= dict.fromkeys(self._sources_through(target, found))
        return tuple(found) or tuple(direct[:1])

    def _sources_through(self, target: str, direct: Container[str]) -> list[str]:
        """Return the languages from which there is a way to `target` through a third one, by the tags of their models.

        Languages that are `direct` need no way.
        """
        second_of = self._seconds(target)
        found: dict[str, None] = {}
        for first, languages in self._languages.items():
            for between in languages.target:
                if all(tag in direct or tag in found for tag in languages.source):
                    break
                if second_of(first, between):
                    found |= dict.fromkeys(sources_of(languages, between))
        of_target = language_of(target)
        return [tag for tag in found if tag not in direct and tag != UNDETERMINED and language_of(tag) != of_target]

    def _seconds(self, target: str) -> Callable[[str, str], str | None]:
        """Return what finds the first model that translates a language, which another model writes, to `target`.

        Each model is asked once for each language, however many models write it, as all of this is on the event loop.
        """
        models = {name: languages for name, languages in self._languages.items() if names(languages.target, target)}

        @cache
        def readers(between: str) -> Sequence[str]:
            found = (
                name
                for name, languages in models.items()
                if between != UNDETERMINED and names(languages.source, between) and _pairs(languages, between, target)
            )
            return tuple(islice(found, 2))  # one of them is not the model that writes it

        return lambda first, between: next((name for name in readers(between) if name != first), None)


def sources_of(languages: Languages, target: str) -> list[str]:
    """Return the languages that a model with these languages translates to `target`, by the model's tags."""
    return [tag for tag, _ in _pairs(languages, None, target)]


def names(available: Sequence[str], tag: str) -> bool:
    """Whether a model with the languages `available` names the language `tag` of a request. ``und`` names none."""
    return bool(tag) and lookup(tag, available) not in (None, UNDETERMINED)


def with_pair(models: Mapping[str, Languages], source: str, target: str) -> list[str]:
    """Return the names of the models that have a pair of a request, by the languages of all models.

    Models that name the languages of the pair go before models of any language, which have them as ``und``.
    """
    found = {name: pair for name, languages in models.items() for pair in _pairs(languages, source, target)}
    return [name for name, pair in found.items() if UNDETERMINED not in pair] or list(found)


def no_such_model(name: str, known: Iterable[str], field: str = "model") -> ModelNotFoundError:
    """Return the error of a request for a model that is none of the `known` ones."""
    return ModelNotFoundError(f"{field}: there is no model {shown(name)}; this server has {listed(known)}")


def no_model_for(source: str, target: str, known: Iterable[str]) -> ModelNotFoundError:
    """Return the error of a request for a language pair that none of the `known` models has."""
    pair = f"{_explained(source)} to {_explained(target)}"
    return ModelNotFoundError(f"model: no model translates {pair}; this server has {listed(known)}")


def no_model_to(target: str, known: Iterable[str]) -> ModelNotFoundError:
    """Return the error of a request for a target language that none of the `known` models has."""
    wanted = f"no model translates to {_explained(target)}" if target else "needs a language"
    return ModelNotFoundError(f"target_language: {wanted}; this server has {listed(known)}")


def several_models(found: Iterable[str]) -> InvalidRequestError:
    """Return the error of a request that the models `found` fit equally."""
    return InvalidRequestError(FieldViolation("model", f"is needed, several models fit: {listed(found)}"))


def _explained(tag: str) -> str:
    """Return `tag` for a message, with its meaning if it names no language."""
    means = meaning(tag)
    return f"{shown(tag)} ({means})" if means else shown(tag)


def _pairs(languages: Languages, source: str | None, target: str | None) -> list[tuple[str, str]]:
    """Return the pairs that a model with these languages translates, by the model's tags.

    Source and target are tags of a request, "" for the model's only language on that side, or None for all.
    """
    prefixes, targets = languages.templates.pair_prefixes, _fitting(languages.target, target)
    return [
        (one, other)
        for one in _fitting(languages.source, source)
        for other in targets
        if not prefixes or other in prefixes.get(one, {})
    ]


def _fitting(available: Sequence[str], tag: str | None) -> Sequence[str]:
    if not tag:
        return available if tag is None or len(available) == 1 else ()
    found = lookup(tag, available)
    return (found,) if found else ()
