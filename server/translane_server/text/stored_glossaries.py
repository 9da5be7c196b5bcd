"""The glossaries that a server stores, by name and language pair."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from translane_server.core.terminal import listed, shown
from translane_server.text.glossary import Glossary
from translane_server.text.language_tags import UNDETERMINED, language_of, lookup

_REMEMBERED_MODELS = 256


@dataclass(frozen=True, slots=True)
class StoredGlossary:
    """A glossary and its languages, which are BCP-47 tags. The glossary has a name."""

    source: str
    target: str
    glossary: Glossary

    @property
    def name(self) -> str:
        """The name, which requests use."""
        return self.glossary.name


class StoredGlossaries:
    """The glossaries of a server at one time. They never change; a change of a file makes other ones.

    Args:
        glossaries: the glossaries.
    """

    def __init__(self, glossaries: Iterable[StoredGlossary] = ()) -> None:
        self._glossaries = sorted(glossaries, key=lambda each: (each.name, each.source, each.target))
        self.names = lru_cache(_REMEMBERED_MODELS)(self._names)

    def __len__(self) -> int:
        return len(self._glossaries)

    def find(self, name: str, source: str, target: str) -> Glossary | None:
        """Return the glossary `name` for two BCP-47 tags; None if there is none.

        Tags are looked up as those of a request among a model's languages: `de-AT` finds `de`.
        """
        named = [each for each in self._glossaries if each.name == name]
        from_tag = lookup(source, [each.source for each in named])
        named = [each for each in named if each.source == from_tag]
        to_tag = lookup(target, [each.target for each in named])
        return next((each.glossary for each in named if each.target == to_tag), None)

    def problem(self, name: str, source: str, target: str) -> str:
        """Return what a request is told whose glossary `find` does not find."""
        if not self._glossaries:
            return "this server stores no glossaries"
        pair = f"{source} to {target}"
        if pairs := [f"{each.source} to {each.target}" for each in self._glossaries if each.name == name]:
            return f"{shown(name)} is a glossary for {listed(pairs)}, and not for {pair}"
        if fit := self.names((source,), (target,)):
            return f"{shown(name)} is not a glossary of this server; for {pair} there is {listed(fit)}"
        return f"{shown(name)} is not a glossary of this server, which has none for {pair}"

    def _names(self, sources: tuple[str, ...], targets: tuple[str, ...]) -> Sequence[str]:
        """Return the names of the glossaries that fit any of the language pairs, in order.

        Args:
            sources: BCP-47 tags.
            targets: BCP-47 tags.
        """
        found = [each.name for each in self._glossaries if _fits(each.source, sources) and _fits(each.target, targets)]
        return tuple(dict.fromkeys(found))


def _fits(tag: str, others: Sequence[str]) -> bool:
    """Whether `lookup` finds `tag` for any of `others`. A glossary or a model without languages may have any."""
    language = language_of(tag)
    return tag == UNDETERMINED or any(
        each == UNDETERMINED or (language_of(each) == language and lookup(each, [tag]) is not None) for each in others
    )
