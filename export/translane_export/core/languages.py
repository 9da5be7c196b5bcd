"""Which languages a bundle is of, and what is put before its sources: as the checkpoint says, or as settings do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from translane_export.core.errors import ExportError
from translane_server.bundle.manifest import Languages, LanguageTemplates
from translane_server.core.terminal import shown
from translane_server.text.language_tags import UNDETERMINED

# RFC 5646, section 2.1, without the registry of subtags.
_TAG = re.compile(
    r"([a-z]{2,3}(-[a-z]{3}){0,3}|[a-z]{4,8})"  # language
    r"(-[a-z]{4})?(-([a-z]{2}|\d{3}))?"  # script, region
    r"(-([a-z0-9]{5,8}|\d[a-z0-9]{3}))*"  # variants
    r"(-[0-9a-wy-z](-[a-z0-9]{2,8})+)*(-x(-[a-z0-9]{1,8})+)?",  # extensions, private use
    re.IGNORECASE | re.ASCII,
)
# Looser: checkpoints have codes such as eng_Latn.
_LONGEST_CODE = 100
_CODE = re.compile(r"[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*")


def is_tag(text: str) -> bool:
    """Whether `text` is a well-formed BCP-47 tag."""
    return _TAG.fullmatch(text) is not None


def choose_languages(
    languages: Languages,
    *,
    source: str | None = None,
    target: str | None = None,
    source_prefix: str | None = None,
    checkpoint: Path,
) -> Languages:
    """Return the languages of a bundle, and how the model is told them.

    Tags and the text before every source take the place of those of the checkpoint at ``checkpoint``. Of a checkpoint
    with a text for each pair of languages, ``source_prefix`` is the pair's whose text it is.

    Raises:
        ExportError: a tag would replace several, or a tag of the checkpoint names no language.
    """
    if source_prefix is not None:
        languages = _with_prefix(languages, source_prefix)
    if source is not None:
        languages = _with_tag(languages, "source", source)
    if target is not None:
        languages = _with_tag(languages, "target", target)
    _check(languages, checkpoint)
    return languages


def _with_prefix(languages: Languages, prefix: str) -> Languages:
    templates = languages.templates
    if not templates.pair_prefixes:
        return replace(languages, templates=replace(templates, text_prefix=prefix))
    found = (
        (source, target)
        for source, others in templates.pair_prefixes.items()
        for target, text in others.items()
        if text.strip() == prefix.strip()
    )
    source, target = next(found, (UNDETERMINED, UNDETERMINED))
    return Languages(source=(source,), target=(target,), templates=LanguageTemplates(text_prefix=prefix))


def _with_tag(languages: Languages, side: Literal["source", "target"], tag: str) -> Languages:
    templates = languages.templates
    old = _only(side, tag, languages.source if side == "source" else languages.target)
    pairs = templates.pair_prefixes
    changes = {
        side: _renamed(templates.source if side == "source" else templates.target, old, tag),
        "pair_prefixes": _renamed(pairs, old, tag)
        if side == "source"
        else {source: _renamed(by_target, old, tag) for source, by_target in pairs.items()},
    }
    return replace(languages, templates=replace(templates, **changes), **{side: (tag,)})


def _only(side: str, wanted: str, tags: tuple[str, ...]) -> str:
    if len(tags) > 1:
        way = "from" if side == "source" else "to"
        raise ExportError(
            f"--{side}-language is {wanted}, and the model translates {way} {len(tags)} languages, each with a tag of"
            " its own; leave it out"
        )
    return tags[0]


def _renamed(by_tag: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    return {new if tag == old else tag: value for tag, value in by_tag.items()}


def _check(languages: Languages, checkpoint: Path) -> None:
    for side, tags in (("source", languages.source), ("target", languages.target)):
        for language in tags:
            if len(language) > _LONGEST_CODE or not _CODE.fullmatch(language):
                raise ExportError(
                    f"{checkpoint}: its {side}_language is {shown(language)}, and a bundle names languages by BCP-47"
                    f" tags such as zh or pt-BR; --{side}-language sets another"
                )
