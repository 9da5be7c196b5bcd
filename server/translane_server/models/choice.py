"""Chooses a model by the languages of a request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from translane_server.manifest import Languages
from translane_server.text.language_tags import UNDETERMINED, lookup

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


def listed(names: Iterable[str]) -> str:
    """Return some of `names`, separated by commas, and how many more there are."""
    every = list(names)
    shown = every[:1]
    for name in every[1:_SHOWN_NAMES]:
        if len(", ".join([*shown, name])) > _SHOWN_CHARACTERS:
            break
        shown.append(name)
    more = len(every) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _find(tag: str, available: Sequence[str]) -> str | None:
    if not tag:
        return available[0] if len(available) == 1 else None
    return lookup(tag, available)
