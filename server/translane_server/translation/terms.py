"""Chooses the terms that the translation of a sentence must keep, and reports what became of them."""

from __future__ import annotations

import unicodedata
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from translane.options import Term
from translane.results import TermOutcome, TermReport
from translane_server.engine.options import RequiredPhrase
from translane_server.text.glossary import Glossary, Words, of_words
from translane_server.text.tokenizer import Tokenizer

_REMEMBERED_PHRASES = 8192  # of some 500 bytes each

# Maximum terms of one sentence: each term takes a share of the beams.
MAX_TERMS_OF_SENTENCE = 16

# Maximum reports about the terms of one text, and about those of all texts of a request. With many texts, a text has a
# share of the latter.
MAX_REPORTS_OF_TEXT = 256
MAX_REPORTS = 4096

# A term of several sentences has the last of their outcomes here.
_WORST_LAST = (TermOutcome.APPLIED, TermOutcome.MISSED, TermOutcome.TOO_MANY, TermOutcome.UNSPELLABLE)

_REQUIRED = TermOutcome.UNSPECIFIED  # the translation must have the term; its outcome is not known yet


class Spelling:
    """Spells phrases for a model, by the target id of its unknown token. What was spelled is remembered."""

    def __init__(self, tokenizer: Tokenizer, unknown: int) -> None:
        self._tokenizer = tokenizer
        self._unknown = unknown
        self.phrase = lru_cache(_REMEMBERED_PHRASES)(self._phrase)

    def ids(self, text: str) -> tuple[tuple[int, ...], bool]:
        """Return the tokens of a text, and whether the vocabulary can spell the text."""
        if not text:
            return (), True
        (ids,) = self._tokenizer.encode_target([text])
        return tuple(ids), self._unknown not in ids

    def _phrase(self, text: str) -> RequiredPhrase | None:
        """Return `text` as the model writes it, for a translation that must have it; None if it cannot be spelled.

        The phrase differs from `text` by white space, case and compatibility characters at most, where the vocabulary
        has no others.
        """
        ids, can_spell = self.ids(text)
        if not can_spell:
            return None
        (spelled,) = self._tokenizer.decode([ids])
        spelled = spelled.strip()
        if not spelled or _rough(spelled) != _rough(text):
            return None
        return RequiredPhrase(spelled.encode(), ids)


def _rough(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


class FoundTerm(NamedTuple):
    """A term that occurs in a sentence."""

    glossary: str  # the name of its stored glossary; "" for a term of the request
    term: Term
    # its target as the model writes it; None if the model's vocabulary cannot spell the target
    phrase: RequiredPhrase | None
    outcome: TermOutcome  # why the translation need not have the term; UNSPECIFIED if it must

    def is_in(self, translation: str) -> bool:
        """Whether the target is in `translation`."""
        spelled = self.phrase is not None and self.phrase.text.decode(errors="replace") in translation
        return spelled or self.term.target in translation


def required_phrases(found: Sequence[FoundTerm]) -> tuple[RequiredPhrase, ...]:
    """Return the phrases that the translation of a sentence with these terms must have, each once."""
    return tuple(dict.fromkeys([each.phrase for each in found if each.outcome == _REQUIRED and each.phrase]))


@dataclass(frozen=True)
class KeptTerms:
    """The terms of a request."""

    own: Glossary  # the terms in the request itself
    # the stored glossaries that the request names. In each text, terms of the request come before theirs, and an
    # earlier glossary before a later one: the words of a term that is found are no part of another term.
    stored: Sequence[Glossary]
    spelling: Spelling  # spells targets
    # phrases that must not occur in translations. A stored term whose target has one is not required.
    suppressed: Sequence[str] = field(default=())
    language: str = ""  # of the sources

    def in_sentence(self, text: str) -> list[FoundTerm]:
        """Return the terms that occur in a sentence, in the order of the text; those of the request come first.

        The translation must have at most 16 phrases of them: those of the longest terms.
        """
        words = Words(text)
        taken = bytearray(len(words))
        found = [
            self._judged(glossary.name, term)
            for glossary in (self.own, *self.stored)
            for term in glossary.find(words, taken)
        ]
        longest_first = sorted(found, key=lambda each: -len(each.term.source))
        kept = set(required_phrases(longest_first)[:MAX_TERMS_OF_SENTENCE])
        return [
            each._replace(outcome=TermOutcome.TOO_MANY)
            if each.outcome == _REQUIRED and each.phrase not in kept
            else each
            for each in found
        ]

    def places(self, text: str) -> list[int]:
        """Return for each character of a sentence whether it is part of a term that the translation must have."""
        required = [each.term for each in self.in_sentence(text) if each.outcome == _REQUIRED]
        words = Words(text)
        taken = bytearray(len(words))
        Glossary(required, self.language).find(words, taken)
        return of_words(text, taken)

    def _judged(self, glossary: str, term: Term) -> FoundTerm:
        phrase = self.spelling.phrase(term.target)
        outcome = TermOutcome.UNSPELLABLE if phrase is None else _REQUIRED
        if glossary and any(suppressed in term.target for suppressed in self.suppressed):
            outcome = TermOutcome.MISSED
        return FoundTerm(glossary, term, phrase, outcome)

    def reports(
        self, sentences: Sequence[tuple[Sequence[FoundTerm], str]], most: int, written: str | None = None
    ) -> list[TermReport]:
        """Report what became of the terms in one text.

        Terms of the request are all reported. Stored terms are reported if they occur in the text. A term that occurs
        in several sentences is applied if the translation of each of them has it. Beyond `most` reports, terms that do
        not occur are left out first. `written` is the text as its caller wrote it, if what was translated lacks parts.
        """
        outcomes: dict[tuple[str, Term], TermOutcome] = {}
        for found, translation in sentences:
            for each in found:
                key = (each.glossary, each.term)
                outcome = TermOutcome.MISSED if each.outcome == _REQUIRED else each.outcome
                outcome = TermOutcome.APPLIED if each.is_in(translation) else outcome
                outcomes[key] = max(outcomes.get(key, outcome), outcome, key=_WORST_LAST.index)
        own = {("", term): outcomes.pop(("", term), None) for term in dict.fromkeys(self.own.terms)}
        preserved: set[Term] = set()
        if written is not None and None in own.values():
            words = Words(written)
            preserved.update(self.own.find(words, bytearray(len(words))))
        reports = [
            (key, outcome or self._absent(key[1], preserved)) for key, outcome in [*own.items(), *outcomes.items()]
        ]
        if len(reports) > most:
            reports.sort(key=lambda report: report[1] == TermOutcome.NOT_FOUND)
        return [TermReport(term.source, term.target, outcome, glossary) for (glossary, term), outcome in reports[:most]]

    def _absent(self, term: Term, preserved: Container[Term]) -> TermOutcome:
        """Return the outcome of a term of the request that occurs in no sentence."""
        if term in preserved:
            return TermOutcome.PRESERVED
        return TermOutcome.NOT_FOUND if self.spelling.phrase(term.target) else TermOutcome.UNSPELLABLE


def most_reports(texts: int) -> int:
    """Return the maximum number of reports of each of `texts` texts of a request (texts ≥ 1)."""
    return min(MAX_REPORTS_OF_TEXT, max(MAX_TERMS_OF_SENTENCE, MAX_REPORTS // texts))
