"""Finds the terms of glossaries in a text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from translane_server.text.words import Form, Words, stemmer_of


@dataclass(frozen=True, slots=True)
class Term:
    """If `source` occurs in a text, `target` must occur in the translation.

    Attributes:
        source: a phrase of the source language, without white space around it.
        target: a phrase of the target language, without white space around it.
        ignore_case: whether upper and lower case of the source are the same.
        inflected: whether other inflected forms of the source's words are found, too.
    """

    source: str
    target: str
    ignore_case: bool = False
    inflected: bool = False


class _Node:
    """A place in the tree of sources: the words before it are the beginning of a source, or a whole one."""

    __slots__ = ("after", "terms")

    def __init__(self) -> None:
        self.after: dict[str, _Node] | None = None  # most places are the end of a source
        self.terms: tuple[Term, ...] = ()

    def next(self, word: str) -> _Node:
        """Return the place after one more word. It is made if it is not there."""
        if self.after is None:
            self.after = {}
        return self.after.setdefault(word, _Node())


class Glossary:
    """Finds terms in texts: as whole words, in the form that each term asks for.

    Both the text and the terms are compared word by word, so a term that begins or ends within a word is never found.
    Of terms that overlap, the first one in the text is found. Of terms that begin at the same word, the longest one is
    found, and a term that is written exactly so comes before one in another form.

    Args:
        terms: the terms. Of several terms with the same source, all are found.
        language: the language of the sources, a BCP-47 tag. It chooses the stemmer; without a stemmer, an inflected
            term is found as it is written.
        name: the name under which the glossary is stored; "" for the terms of a request.
    """

    def __init__(self, terms: Iterable[Term] = (), language: str = "", name: str = "") -> None:
        self.name = name
        self.terms = tuple(terms)
        stemmer = stemmer_of(language)
        roots: dict[Form, _Node] = {}
        for term in self.terms:
            form = Form(term.ignore_case, stemmer if term.inflected else "")
            node = roots.setdefault(form, _Node())
            for word in Words(term.source).in_form(form):
                node = node.next(word)
            node.terms += (term,)
        self._roots = [(form, roots[form].after or {}) for form in sorted(roots)]  # what is written exactly comes first

    def find(self, words: Words, taken: bytearray) -> list[Term]:
        """Return the terms that occur in a text, each once, in the order of the text.

        The time grows with the length of the text times the length of the longest source, whatever the terms.

        Args:
            words: the n words of the text.
            taken: n flags: 1 for a word that is part of a term. No term is found there, and the words of the terms
                that are found are taken afterwards.
        """
        trees = [(words.in_form(form), after) for form, after in self._roots]
        found: dict[Term, None] = {}
        place, end = 0, len(words)
        while place < end:
            terms, past = _longest(trees, place, taken) if not taken[place] else ((), place)
            if terms:
                found.update(dict.fromkeys(terms))
                taken[place:past] = b"\1" * (past - place)
            place = max(past, place + 1)
        return list(found)


def _longest(
    trees: Sequence[tuple[Sequence[str], dict[str, _Node]]], start: int, taken: bytearray
) -> tuple[tuple[Term, ...], int]:
    """Return the terms with the longest source at `start`, and the place after it; no terms if there is none."""
    terms: tuple[Term, ...] = ()
    past = start
    for words, after in trees:
        place = start
        following: dict[str, _Node] | None = after
        while following and (node := following.get(words[place])):
            place += 1
            if node.terms and place > past:
                terms, past = node.terms, place
            if place == len(words) or taken[place]:
                break
            following = node.after
    return terms, past
