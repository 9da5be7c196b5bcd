"""Finds the terms of a glossary in a text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import ahocorasick

from translane_server.options import RequiredPhrase
from translane_server.text.normal_form import composed

# First words of the Unicode names of letters of scripts that write no space between words.
_UNSPACED_SCRIPTS = frozenset(
    {
        "CJK",
        "HIRAGANA",
        "KATAKANA",
        "KATAKANA-HIRAGANA",
        "HALFWIDTH",
        "BOPOMOFO",
        "IDEOGRAPHIC",
        "THAI",
        "LAO",
        "KHMER",
        "MYANMAR",
        "TIBETAN",
        "JAVANESE",
        "BALINESE",
        "YI",
    }
)

# Stands between words. Texts of the protocol are UTF-8, which has no surrogates.
_BETWEEN = "\ud800"

# The kinds of characters, where words are concerned.
_SPACED, _MARK, _OTHER = "s", "m", "o"

# A word, in kinds: letters and digits of a script that writes spaces, or any other character; each with its marks.
_WORD = re.compile(f"{_SPACED}[{_SPACED}{_MARK}]*|[{_OTHER}{_MARK}]{_MARK}*")

_REMEMBERED_KINDS = 0x10000  # of characters up to this one, so that no text can fill the memory


@dataclass(frozen=True, slots=True)
class Term:
    """If `source` occurs in a text, `phrase` must occur in the translation."""

    source: str
    phrase: RequiredPhrase


class Glossary:
    """Finds terms in texts: as whole words, exactly as written except for the Unicode normal form.

    All terms are found in one pass over the text (Aho and Corasick 1975, https://doi.org/10.1145/360825.360855). Both
    the text and the terms are searched word by word, so a term that begins or ends within a word is never found.

    Args:
        terms: the terms, in the order in which `required` returns their phrases.
    """

    def __init__(self, terms: Sequence[Term] = ()) -> None:
        sources: dict[RequiredPhrase, set[str]] = {}
        for term in terms:
            sources.setdefault(term.phrase, set()).add(_in_words(composed(term.source)))
        self._phrases = tuple(sources)
        numbers: dict[str, list[int]] = {}
        for number, of_phrase in enumerate(sources.values()):
            for source in _without_containing(of_phrase):
                numbers.setdefault(source, []).append(number)
        self._automaton = ahocorasick.Automaton()
        for source, found in numbers.items():
            self._automaton.add_word(source, found)
        self._automaton.make_automaton()

    def required(self, text: str, most: int) -> tuple[RequiredPhrase, ...]:
        """Return the phrases of the terms that occur in `text`, each phrase once.

        If there are more than `most` phrases, only some of them are returned, but more than `most`. So the time grows
        with the length of the text times `most` at worst, whatever the terms.
        """
        if not self._phrases:
            return ()
        found: set[int] = set()
        for _, numbers in self._automaton.iter(_in_words(composed(text))):
            found.update(numbers)
            if len(found) > most:
                break
        return tuple(self._phrases[number] for number in sorted(found))


def _without_containing(sources: set[str]) -> list[str]:
    """Return the sources in which no other of them occurs. Where one of the others occurs, the shorter one does too."""
    kept: list[str] = []
    for source in sorted(sources, key=len):
        if not any(other in source for other in kept):
            kept.append(source)
    return kept


def _in_words(text: str) -> str:
    """Return `text` with a sign before, between and after its words."""
    words = [text[match.start() : match.end()] for match in _WORD.finditer(text.translate(_KINDS))]
    return _BETWEEN + _BETWEEN.join(words) + _BETWEEN


class _Kinds(dict[int, str]):
    """The kind of each character, by its code point, for `str.translate`. The kinds of most texts are remembered."""

    def __missing__(self, point: int) -> str:
        kind = _kind(chr(point))
        if point < _REMEMBERED_KINDS:
            self[point] = kind
        return kind


_KINDS = _Kinds()


def _kind(character: str) -> str:
    if unicodedata.category(character).startswith("M"):  # a mark belongs to the character before it
        return _MARK
    spaced = character.isalnum() and unicodedata.name(character, "").partition(" ")[0] not in _UNSPACED_SCRIPTS
    return _SPACED if spaced else _OTHER
