"""Stored glossaries: their files, and which of them a request finds by name and language pair."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO

from translane.options import Term
from translane_server.core.errors import GlossaryError
from translane_server.core.terminal import listed, shown
from translane_server.text.characters import composed
from translane_server.text.glossary import Glossary
from translane_server.text.language_tags import LONGEST_TAG, UNDETERMINED, language_of, lookup

SUFFIX = ".tsv"
MOST_BYTES = 16 * 1024 * 1024  # of a file
MOST_TERMS = 50_000  # of a file
LONGEST_PHRASE = 128  # of a source or target [characters]

_LONGEST_LINE = 4096  # bytes; two phrases and the flags are shorter
_LONGEST_NAME = 100
_NAME = re.compile(r"[A-Za-z0-9][\w.\-]*", re.ASCII)
_TAG = re.compile(r"[A-Za-z]{2,8}([\-_][A-Za-z0-9]{1,8})*")


def read_name(file_name: str) -> tuple[str, str, str]:
    """Return what the name of a file says: `medical.de.en.tsv` is the glossary `medical` from German to English.

    Raises:
        GlossaryError: the name is another one.
    """
    name, *tags = file_name.removesuffix(SUFFIX).rsplit(".", 2)
    if len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) and len(tags) == 2:
        source, target = tags
        if all(len(tag) <= LONGEST_TAG and _TAG.fullmatch(tag) for tag in tags):
            return name, source, target
    raise GlossaryError("its name must be NAME.SOURCE.TARGET.tsv with two language tags, such as medical.de.en.tsv")


def read_terms(content: bytes) -> Iterator[Term]:
    """Yield the terms of a file.

    `Term.of_line` reads a line. Blank lines, and lines that begin with #, are left out.

    Raises:
        GlossaryError: a line holds no term, or the file has too many; the message names the line.
    """
    lines: dict[tuple[str, bool, bool], int] = {}
    for number, text in _lines(content):
        if not text.strip() or text.startswith("#"):
            continue
        if len(lines) == MOST_TERMS:
            raise GlossaryError(f"line {number}: a file has at most {MOST_TERMS} terms")
        try:
            term = _term(text)
            key = (composed(term.source), term.ignore_case, term.inflected)
            if (first := lines.setdefault(key, number)) != number:
                raise GlossaryError(f"the source is that of line {first}")
        except GlossaryError as error:
            raise GlossaryError(f"line {number}: {error}") from None
        yield term


def _lines(content: bytes) -> Iterator[tuple[int, str]]:
    for number, ended in enumerate(BytesIO(content.removeprefix(BOM_UTF8)), start=1):  # a list of all would be large
        line = ended.removesuffix(b"\n")
        if len(line) > _LONGEST_LINE:
            raise GlossaryError(f"line {number}: it has {len(line):,} bytes, at most {_LONGEST_LINE} are accepted")
        try:
            yield number, line.removesuffix(b"\r").decode()
        except UnicodeDecodeError:
            raise GlossaryError(f"line {number}: it is not UTF-8") from None


def _term(text: str) -> Term:
    try:
        term = Term.of_line(text)
    except ValueError as error:
        raise GlossaryError(str(error)) from None
    for side, phrase in (("source", term.source), ("target", term.target)):
        if len(phrase) > LONGEST_PHRASE:
            raise GlossaryError(f"the {side} has {len(phrase)} characters, at most {LONGEST_PHRASE} are accepted")
        if "\0" in phrase:
            raise GlossaryError(f"the {side} has a zero character")
    return term


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
    """The glossaries of a server at one time. They never change; a change of a file makes other ones."""

    def __init__(self, glossaries: Iterable[StoredGlossary] = ()) -> None:
        self._glossaries = sorted(glossaries, key=lambda each: (each.name, each.source, each.target))
        self.names = lru_cache(_REMEMBERED_MODELS)(self._names)

    def __len__(self) -> int:
        return len(self._glossaries)

    def find(self, name: str, source: str, target: str) -> Glossary | None:
        """Return the glossary `name` for two BCP-47 tags; None if there is none.

        Tags are looked up as those of a request among a model's languages: `de-AT` finds `de`.
        """
        named = [each for each in self._glossaries if each.name == name and lookup(target, [each.target])]
        from_tag = lookup(source, [each.source for each in named])
        named = [each for each in named if each.source == from_tag]
        to_tag = lookup(target, [each.target for each in named])
        return next((each.glossary for each in named if each.target == to_tag), None)

    def problem(self, name: str, source: str, target: str) -> str:
        """Return what a request is told whose glossary `find` does not find."""
        if not self._glossaries:
            return "this server has none"
        pair = f"{source} to {target}"
        if pairs := [f"{each.source} to {each.target}" for each in self._glossaries if each.name == name]:
            return f"{shown(name)} is a glossary for {listed(pairs)}, and not for {pair}"
        if fit := self.names((source,), (target,)):
            return f"{shown(name)} is not a glossary of this server; for {pair} there is {listed(fit)}"
        return f"{shown(name)} is not a glossary of this server, which has none for {pair}"

    def _names(self, sources: tuple[str, ...], targets: tuple[str, ...]) -> Sequence[str]:
        """Return the names of the glossaries that fit any pair of these BCP-47 tags, in order."""
        found = [each.name for each in self._glossaries if _fits(each.source, sources) and _fits(each.target, targets)]
        return tuple(dict.fromkeys(found))


def _fits(tag: str, others: Sequence[str]) -> bool:
    """Whether `lookup` finds `tag` for any of `others`. A glossary or a model without languages may have any."""
    language = language_of(tag)
    return tag == UNDETERMINED or any(
        each == UNDETERMINED or (language_of(each) == language and lookup(each, [tag]) is not None) for each in others
    )
