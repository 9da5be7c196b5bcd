"""Finds the terms of a glossary in a text."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from translane_server.options import RequiredPhrase

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


@dataclass(frozen=True, slots=True)
class Term:
    """If `source` occurs in a text, `phrase` must occur in the translation."""

    source: str
    phrase: RequiredPhrase


class Glossary:
    """Finds terms in texts: as whole words, exactly as written except for the Unicode normal form.

    Args:
        terms: the terms, in the order in which `required` returns their phrases.
    """

    def __init__(self, terms: Sequence[Term] = ()) -> None:
        self._terms = [(_normal(term.source), term.phrase) for term in terms]

    def required(self, text: str) -> tuple[RequiredPhrase, ...]:
        """Return the phrases of all terms that occur in `text`, each phrase once."""
        if not self._terms:
            return ()
        text = _normal(text)
        return tuple(dict.fromkeys(phrase for source, phrase in self._terms if occurs(source, text)))


def occurs(term: str, text: str) -> bool:
    """Whether `term` occurs in `text`, and not only within a word. Both are in the same normal form."""
    start = text.find(term)
    while start >= 0:
        if not (_in_word(text, start) or _in_word(text, start + len(term))):
            return True
        start = text.find(term, start + 1)
    return False


def _normal(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _in_word(text: str, index: int) -> bool:
    """Whether the characters before and at `index` belong to the same word."""
    if not 0 < index < len(text):
        return False
    if unicodedata.category(text[index]).startswith("M"):  # a mark belongs to the character before it
        return True
    return _is_of_spaced_word(_base(text, index - 1)) and _is_of_spaced_word(text[index])


def _base(text: str, index: int) -> str:
    """Return `text[index]`, or if it is a mark, the character that the mark belongs to."""
    while index and unicodedata.category(text[index]).startswith("M"):
        index -= 1
    return text[index]


def _is_of_spaced_word(character: str) -> bool:
    """Whether `character` is a letter or digit of a script that writes spaces between words."""
    if not character.isalnum():
        return False
    return unicodedata.name(character, "").partition(" ")[0] not in _UNSPACED_SCRIPTS
