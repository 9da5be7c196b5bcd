"""Finds the terms of glossaries in a text, word by word."""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from operator import add
from threading import Lock
from typing import Any, NamedTuple

import Stemmer

from translane.options import Term
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
    """The form in which words are compared."""

    ignore_case: bool = False  # whether upper and lower case are the same
    stemmer: str = ""  # the stemmer that leaves out the endings of words; "" for none


class Words:
    """The n words of a text, in every form that is asked for. A space and a punctuation mark are words, too.

    The Unicode normal form of the text does not matter.
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


def of_words(text: str, flags: Sequence[int]) -> list[int]:
    """Return the flag of each character of a text, from the flags of its words. No normal form has other words."""
    words = _WORD.finditer(text.translate(_KINDS))
    return [flag for flag, word in zip(flags, words, strict=False) for _ in word.group()]


def stemmer_of(language: str) -> str:
    """Return the name of the stemmer for a BCP-47 tag; "" if there is none."""
    return STEMMERS.get(language_of(language), "")


def _in_form(words: Sequence[str], form: Form) -> Sequence[str]:
    folded = [composed(word.casefold()) for word in words]
    if not form.stemmer:
        return folded
    stemmer, lock = _stemmer(form.stemmer)
    with lock:  # a stemmer may be used by one thread at a time
        found: list[str] = stemmer.stemWords([word if len(word) <= _LONGEST_INFLECTED else "" for word in folded])
    stems = [stem or word for stem, word in zip(found, folded, strict=True)]
    return stems if form.ignore_case else [_in_case_of(*each) for each in zip(stems, words, strict=True)]


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


class Glossary:
    """Finds terms in texts: as whole words, in the form that each term asks for.

    Both the text and the terms are compared word by word, so a term that begins or ends within a word is never found.
    Of terms that overlap, the first one in the text is found. Of terms that begin at the same word, the longest one is
    found, and a term that is written exactly so comes before one in another form. Of several terms with the same
    source, all are found.

    The phrases of the terms have no white space around them. The language of the sources, a BCP-47 tag, chooses the
    stemmer; without a stemmer, an inflected term is found as it is written. The terms of a request have no name.
    """

    def __init__(self, terms: Iterable[Term] = (), language: str = "", name: str = "") -> None:
        self.name = name
        stemmer = stemmer_of(language)
        fields: list[tuple[str, str, bool, bool]] = []
        sources: dict[Form, list[str]] = {}
        numbers: dict[Form, array[int]] = {}
        for number, term in enumerate(terms):
            form = Form(term.ignore_case, stemmer if term.inflected else "")
            fields.append((term.source, term.target, term.ignore_case, term.inflected))
            sources.setdefault(form, []).append(_END.join([*Words(term.source).in_form(form), ""]))
            numbers.setdefault(form, array("I")).append(number)
        # Plain tuples of strings: the garbage collector, which stops the whole server, does not follow them.
        self._terms = tuple(fields)
        # What is written exactly comes first.
        self._tables = [(form, _SourceTable(sources[form], numbers[form])) for form in sorted(sources)]

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms, made anew."""
        return tuple(Term(*term) for term in self._terms)

    @property
    def size(self) -> int:
        """The number of terms."""
        return len(self._terms)

    def find(self, words: Words, taken: bytearray) -> list[Term]:
        """Return the terms that occur in a text of n words, each once, in the order of the text.

        `taken` has n flags: 1 for a word that is part of a term. No term is found there, and the words of the terms
        that are found are taken afterwards. The time grows with the length of the text times the length of the longest
        source, and hardly with the terms.
        """
        found: dict[int, None] = {}
        until = 0  # no word from the place to here is taken
        starts: dict[int, list[_Text]] = {}
        for form, table in self._tables:
            text = _Text(table, words.in_form(form))
            for start in text.starts:
                starts.setdefault(start, []).append(text)
        for start in sorted(starts):
            if taken[start]:
                continue
            if until <= start:
                next_taken = taken.find(1, start)
                until = len(taken) if next_taken < 0 else next_taken
            numbers: Iterable[int] = ()
            past = start
            for text in starts[start]:
                others, past_others = text.longest(start, until)
                if past_others > past:
                    numbers, past = others, past_others
            found.update(dict.fromkeys(numbers))
            taken[start:past] = b"\1" * (past - start)
        return list(dict.fromkeys(Term(*self._terms[number]) for number in found))


class _SourceTable:
    """The sources of terms in one form, in order, and the numbers of the terms.

    A source is its words, each with its end. Several terms may have the same one.
    """

    def __init__(self, sources: Sequence[str], numbers: Sequence[int]) -> None:
        order = sorted(range(len(sources)), key=sources.__getitem__)
        self.sources = tuple(sources[place] for place in order)
        self.numbers = array("I", (numbers[place] for place in order))
        # for each source, the place of the longest other one that it begins with; -1 if there is none
        self.beginnings = array("i")
        begun: list[int] = []
        for place, source in enumerate(self.sources):
            while begun and (source == self.sources[begun[-1]] or not source.startswith(self.sources[begun[-1]])):
                begun.pop()
            self.beginnings.append(begun[-1] if begun else -1)
            begun.append(place)
        self.heads = frozenset(map(_head, sources))  # the first two words of each source, or the only one
        self.longest = max(map(len, sources))  # [characters]


class _Text:
    """A text in the form of a table. It finds the longest source at a place, one of the `starts` where any may begin.

    A source that a text begins with comes before the text, and each source between the two begins with it. So the
    longest one is the last source before the text, or else the longest that this source begins with, and so on.
    """

    def __init__(self, table: _SourceTable, words: Sequence[str]) -> None:
        heads = table.heads
        ended = [word + _END for word in words]
        pairs = map(add, ended, [*ended[1:], ""])
        self.starts = [
            place for place, (word, pair) in enumerate(zip(ended, pairs, strict=True)) if word in heads or pair in heads
        ]
        self._table = table
        if self.starts:
            self._text = "".join(ended)
            self._places = list(accumulate(map(len, ended), initial=0))  # of words, and of the end [characters]

    def longest(self, start: int, end: int) -> tuple[Iterable[int], int]:
        """Return the numbers of the terms with the longest source at the word `start`, and the word after it.

        These are none and `start` if no source is there. No word from `end` on is part of a source.
        """
        sources = self._table.sources
        begin = self._places[start]
        text = self._text[begin : min(self._places[end], begin + self._table.longest)]
        last = bisect_right(sources, text) - 1
        while last >= 0 and not text.startswith(sources[last]):
            last = self._table.beginnings[last]
        if last < 0:
            return (), start
        source = sources[last]
        several = last > 0 and sources[last - 1] == source
        first = bisect_left(sources, source, 0, last) if several else last
        return self._table.numbers[first : last + 1], bisect_left(self._places, begin + len(source), start)


# The end of each word of a source or a text. A word may have it at its beginning, and nowhere else. So a text begins
# with a source if and only if its words begin with the words of the source.
_END = "\0"


def _head(source: str) -> str:
    first = source.index(_END, 1) + 1
    return source[: source.find(_END, first + 1) + 1] or source
