"""Chooses a model by the languages of a request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from translane_server.bundle.manifest import Languages
from translane_server.core.errors import FieldViolation, InvalidRequestError, ModelNotFoundError
from translane_server.core.terminal import shown
from translane_server.text.language_tags import UNDETERMINED, lookup, meaning

_SHOWN_NAMES = 6
_SHOWN_CHARACTERS = 60  # of names in a message


def has_pair(languages: Languages, source: str, target: str) -> bool:
    """Whether a model with these languages translates `source` to `target`, which are tags of a request.

    An empty tag means the model's only language on that side.
    """
    found = _find(source, languages.source), _find(target, languages.target)
    pairs = languages.templates.pair_prefixes
    return all(found) and (not pairs or found[1] in pairs.get(found[0] or "", {}))


def sources_of(languages: Languages, target: str) -> list[str]:
    """Return the languages that a model with these languages translates to `target`, by the model's tags."""
    found = _find(target, languages.target)
    pairs = languages.templates.pair_prefixes
    return [tag for tag in languages.source if found and (not pairs or found in pairs.get(tag, {}))]


def targets_of(languages: Languages, source: str) -> list[str]:
    """Return the languages that a model with these languages translates `source` to, by the model's tags."""
    found = _find(source, languages.source)
    pairs = languages.templates.pair_prefixes
    return [tag for tag in languages.target if found and (not pairs or tag in pairs.get(found, {}))]


def names(available: Sequence[str], tag: str) -> bool:
    """Whether a model with the languages `available` names the language `tag` of a request. ``und`` names none."""
    return bool(tag) and lookup(tag, available) not in (None, UNDETERMINED)


def names_pair(languages: Languages, source: str, target: str) -> bool:
    """Whether a model that has a pair also names its languages, and does not have them as ``und``."""
    return UNDETERMINED not in (_find(source, languages.source), _find(target, languages.target))


def with_pair(models: Mapping[str, Languages], source: str, target: str) -> list[str]:
    """Return the names of the models that have a pair. Models that name its languages go before models of any language.

    Args:
        models: the languages of each model, by name.
        source: tag of a request.
        target: tag of a request.
    """
    found = [name for name, languages in models.items() if has_pair(languages, source, target)]
    return [name for name in found if names_pair(models[name], source, target)] or found


def listed(names: Iterable[str]) -> str:
    """Return some of `names`, separated by commas, and how many more there are."""
    every = list(names)
    some = every[:1]
    for name in every[1:_SHOWN_NAMES]:
        if len(", ".join([*some, name])) > _SHOWN_CHARACTERS:
            break
        some.append(name)
    more = len(every) - len(some)
    return ", ".join(some) + (f" and {more} more" if more else "")


def no_such_model(name: str, known: Iterable[str]) -> ModelNotFoundError:
    """Return the error of a request for a model that is none of the `known` ones."""
    return ModelNotFoundError(f"model: there is no model {shown(name)}; this server has {listed(known)}")


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


def _find(tag: str, available: Sequence[str]) -> str | None:
    if not tag:
        return available[0] if len(available) == 1 else None
    return lookup(tag, available)
