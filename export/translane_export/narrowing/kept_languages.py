"""Some languages of a model of many."""

from __future__ import annotations

from collections.abc import Sequence

from translane_export.errors import ExportError
from translane_server.bundle.manifest import Languages, LanguageTemplates, LanguageTokens
from translane_server.core.terminal import listed, shown
from translane_server.text.language_tags import lookup


def keep_languages(languages: Languages, wanted: Sequence[str]) -> Languages:
    """Return the languages that `wanted` names, in its order, with their templates.

    A tag finds a model's language as the tag of a request does: ``de`` finds ``deu_Latn``. A side with one language
    keeps the language.

    Raises:
        ExportError: a tag is not a language of the model, or a side has several languages, and `wanted` names none; or
            the model has one pair of languages, and `wanted` names one of the two.
    """
    source, target = _kept(languages.source, wanted), _kept(languages.target, wanted)
    for tag in wanted:
        if not lookup(tag, languages.source) and not lookup(tag, languages.target):
            known = tuple(dict.fromkeys([*languages.source, *languages.target]))
            raise ExportError(f"--languages: {shown(tag)} is not a language of the model, which has: {listed(known)}")
    for side, found, there in (("from", source, languages.source), ("to", target, languages.target)):
        if not found:
            raise ExportError(f"--languages: the model translates {side} none of them, but {side} {listed(there)}")
    if len(languages.source) == len(languages.target) == 1:
        (one,), (other,) = languages.source, languages.target
        if not all(any(lookup(tag, (each,)) for tag in wanted) for each in (one, other)):
            raise ExportError(f"--languages: the model has one pair of languages, {one} to {other}; leave it out")
    templates = languages.templates
    pairs = {
        one: {other: text for other, text in templates.pair_prefixes.get(one, {}).items() if other in target}
        for one in source
    }
    pairs = {one: others for one, others in pairs.items() if others}
    if templates.pair_prefixes:
        if not pairs:
            possible = [f"{one} to {other}" for one, others in templates.pair_prefixes.items() for other in others]
            raise ExportError(f"--languages: no pair of them is one of the model's, which are {listed(possible)}")
        source = tuple(one for one in source if one in pairs)
        target = tuple(other for other in target if any(other in others for others in pairs.values()))
    return Languages(
        source=source,
        target=target,
        templates=LanguageTemplates(
            source={tag: tokens for tag, tokens in templates.source.items() if tag in source},
            target={tag: tokens for tag, tokens in templates.target.items() if tag in target},
            text_prefix=templates.text_prefix,
            pair_prefixes=pairs,
        ),
    )


def language_ids(templates: LanguageTemplates) -> set[int]:
    """The ids that tell a model its languages."""
    return {id_ for tokens in (*templates.source.values(), *templates.target.values()) for id_ in _ids(tokens)}


def _ids(tokens: LanguageTokens) -> tuple[int, ...]:
    return (*tokens.source_prefix, *tokens.source_suffix, *tokens.forced)


def _kept(available: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    if len(available) == 1:
        return tuple(available)
    return tuple(dict.fromkeys(tag for tag in (lookup(each, available) for each in wanted) if tag))
