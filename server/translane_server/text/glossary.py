"""Which terms of a glossary occur in a text."""

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
    """Where `source` occurs in a text, `phrase` has to occur in its translation."""

    source: str
    phrase: RequiredPhrase


class Glossary:
    """Finds terms: as they are written, but for the Unicode normal form, and as whole words.

    Args:
        terms: in the order in which their phrases are returned.
    """

    def __init__(self, terms: Sequence[Term] = ()) -> None:
        self._terms = [(_normal(term.source), term.phrase) for term in terms]

    def required(self, text: str) -> tuple[RequiredPhrase, ...]:
        """The phrases of all terms that occur in `text`, each once."""
        if not self._terms:
            return ()
        text = _normal(text)
        return tuple(dict.fromkeys(phrase for source, phrase in self._terms if occurs(source, text)))


def occurs(term: str, text: str) -> bool:
    """Whether `text` has `term`, and not only within a word; both in the same normal form."""
    start = text.find(term)
    while start >= 0:
        if not (_in_word(text, start) or _in_word(text, start + len(term))):
            return True
        start = text.find(term, start + 1)
    return False


def _normal(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _in_word(text: str, index: int) -> bool:
    """Whether the characters before and at `index` are of one word."""
    if not 0 < index < len(text):
        return False
    if unicodedata.category(text[index]).startswith("M"):  # a mark belongs to the character before it
        return True
    return _is_of_spaced_word(_base(text, index - 1)) and _is_of_spaced_word(text[index])


def _base(text: str, index: int) -> str:
    """The character that `text[index]` is, or is a mark of."""
    while index and unicodedata.category(text[index]).startswith("M"):
        index -= 1
    return text[index]


def _is_of_spaced_word(character: str) -> bool:
    """Whether it is a letter or digit of a script that writes spaces between words."""
    if not character.isalnum():
        return False
    return unicodedata.name(character, "").partition(" ")[0] not in _UNSPACED_SCRIPTS
