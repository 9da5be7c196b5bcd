"""Cuts texts into words, and brings words to the forms in which terms are compared with texts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from threading import Lock
from typing import Any, NamedTuple

import Stemmer

from translane_server.text.characters import UNSPACED_LETTER, composed
from translane_server.text.language_tags import language_of

# The kinds of characters, where words are concerned.
_SPACED, _MARK, _OTHER = "s", "m", "o"

# A word, in kinds: letters and digits of a script that writes spaces, or any other character; each with its marks.
_WORD = re.compile(f"{_SPACED}[{_SPACED}{_MARK}]*|[{_OTHER}{_MARK}]{_MARK}*")

_REMEMBERED_KINDS = 0x10000  # of characters up to this one, so that no text can fill the memory

# The stemmers of Snowball (https://snowballstem.org/algorithms), by the BCP-47 language. A language without a stemmer
# has no inflected forms here.
STEMMERS: Mapping[str, str] = dict(
    re.findall(
        r"(\w+):(\w+)",
        """
    ar:arabic ca:catalan cs:czech da:danish de:german el:greek en:english eo:esperanto es:spanish et:estonian eu:basque
    fa:persian fi:finnish fr:french ga:irish hi:hindi hu:hungarian hy:armenian id:indonesian it:italian lt:lithuanian
    nb:norwegian ne:nepali nl:dutch nn:norwegian pl:polish pt:portuguese ro:romanian ru:russian sr:serbian st:sesotho
    sv:swedish ta:tamil tr:turkish yi:yiddish
    """,
    )
)

# A longer word is no word of a language, and has no inflected forms [characters].
_LONGEST_INFLECTED = 64


class Form(NamedTuple):
    """The form in which words are compared.

    Attributes:
        ignore_case: whether upper and lower case are the same.
        stemmer: the stemmer that leaves out the endings of words; "" for none.
    """

    ignore_case: bool = False
    stemmer: str = ""


class Words:
    """The n words of a text, in every form that is asked for. A space and a punctuation mark are words, too.

    Args:
        text: the text. Its Unicode normal form does not matter.
    """

    def __init__(self, text: str) -> None:
        text = composed(text)
        kinds = text.translate(_KINDS)
        if _SPACED in kinds or _MARK in kinds:
            self._words = [text[match.start() : match.end()] for match in _WORD.finditer(kinds)]
        else:
            self._words = list(text)  # every character is a word, as in most of a Chinese glossary
        self._forms: dict[Form, Sequence[str]] = {Form(): self._words}

    def __len__(self) -> int:
        return len(self._words)

    def in_form(self, form: Form) -> Sequence[str]:
        """Return the n words in the form `form`."""
        known = self._forms.get(form)
        if known is None:
            known = self._forms[form] = _in_form(self._words, form)
        return known


def stemmer_of(language: str) -> str:
    """Return the name of the stemmer for a BCP-47 tag; "" if there is none."""
    return STEMMERS.get(language_of(language), "")


def _in_form(words: Sequence[str], form: Form) -> Sequence[str]:
    folded = [composed(word.casefold()) for word in words]
    if not form.stemmer:
        return folded
    short: list[str] = [word if len(word) <= _LONGEST_INFLECTED else "" for word in folded]
    stems = [stem or word for stem, word in zip(_stems(short, form.stemmer), folded, strict=True)]
    return stems if form.ignore_case else [_in_case_of(*each) for each in zip(stems, words, strict=True)]


def _stems(words: list[str], name: str) -> list[str]:
    stemmer, lock = _stemmer(name)
    with lock:  # a stemmer may be used by one thread at a time
        found: list[str] = stemmer.stemWords(words)
    return found


@cache
def _stemmer(name: str) -> tuple[Any, Lock]:
    return Stemmer.Stemmer(name, 0), Lock()  # 0: it remembers no words


def _in_case_of(stem: str, word: str) -> str:
    """Return `stem` in upper case, with a capital, or in lower case, as `word` is."""
    if len(word) > 1 and word.isupper():
        return stem.upper()
    return stem.capitalize() if word[:1].isupper() else stem


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
    spaced = character.isalnum() and not UNSPACED_LETTER.match(character)
    return _SPACED if spaced else _OTHER
