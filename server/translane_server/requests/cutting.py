"""Cuts a request's texts into sentences, without what is not translated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from translane.v1 import translation_pb2 as pb
from translane_server.budget import Budget
from translane_server.errors import FieldViolation, InvalidRequestError
from translane_server.requests.language_pairs import LanguagePair
from translane_server.requests.limits import CHARACTERS_PER_TOKEN, TokenLimits
from translane_server.requests.merging import CutText
from translane_server.requests.source import Source
from translane_server.requests.tokenizing import tokenize
from translane_server.text.halving import LongCharacterError, SplitLimits
from translane_server.text.kept import Kept, cut_at, without_overlaps
from translane_server.text.marked_block import MarkedBlock, TakenOut
from translane_server.text.marks import MarkedText
from translane_server.text.markup.document import Document
from translane_server.text.preserve_patterns import PreservePatterns
from translane_server.text.preserving import may_preserve, untranslatable
from translane_server.text.removal import Span
from translane_server.text.sentence_ends import maybe_several
from translane_server.text.splitting import SplitText, split_text
from translane_server.text.unknown_parts import unknown_parts

SPLIT_ADVICE = "; split_sentences cuts it into sentences"

# How often a sentence is searched for unknown characters. Tokens around a part that is taken out may be others.
_SEARCHES = 3


@dataclass(frozen=True)
class Cutting:
    """How texts are cut, and what of them is kept.

    Attributes:
        pair: the language pair, which tokenizes texts.
        language: the source language, a standard tag.
        unknown: the id of the unknown token.
        splits: whether texts are cut into sentences; None cuts only texts that have several sentences or are too long.
        preserves: whether rules find what is kept, and unknown characters are kept.
        patterns: the request's patterns of what is kept.
        tokens: limits of the lengths.
    """

    pair: LanguagePair
    language: str
    unknown: int
    splits: bool | None
    preserves: bool
    patterns: PreservePatterns
    tokens: TokenLimits

    def is_plain(self, text: str) -> bool:
        """Whether `text` is one sentence in which nothing is kept, as far as can be told without tokens."""
        return not (
            self.splits
            or self.patterns
            or (self.splits is None and (maybe_several(text) or len(text) > self._characters))
            or (self.preserves and may_preserve(text))
        )

    def is_plain_sentence(self, ids: Sequence[int]) -> bool:
        """Whether a plain text with these tokens is a sentence as it is."""
        return not ((self.preserves and self.unknown in ids) or (self.splits is None and len(ids) > self.tokens.source))

    @property
    def _characters(self) -> int:
        return CHARACTERS_PER_TOKEN * self.tokens.source

    def cut(
        self, field: str, text: str, document: Document | None, sentences: int, budget: Budget
    ) -> tuple[list[Source], CutText]:
        """Cut a text.

        Args:
            field: the text's field, which errors name.
            text: the text.
            document: the text as blocks, if it has markup.
            sentences: maximum sentences.
            budget: is checked between the pieces of the work.

        Raises:
            InvalidRequestError: a part that cannot be cut is too long, or a text that stays whole has too many
                tokens.
            TooManySentencesError: the text has more than `sentences`.
        """
        blocks = document.blocks if document else (MarkedText(text),)
        sources: list[Source] = []
        gaps = []
        treatment = pb.Treatment()
        for block in blocks:
            cut = _BlockCutting(self, block, document, budget)
            try:
                split = cut.split(sentences - len(sources))
            except LongCharacterError as error:
                message = f"has a character of {error.length} code points, at most {self._characters} are accepted"
                raise InvalidRequestError(FieldViolation(field, message)) from None
            most = max(map(len, split.source_ids), default=0)
            if most > self.tokens.source:
                what = f"has {most} tokens" if self.splits is False else f"has a character of {most} tokens"
                advice = SPLIT_ADVICE if self.splits is False else ""
                message = f"{what}, at most {self.tokens.source} are accepted{advice}"
                raise InvalidRequestError(FieldViolation(field, message))
            found, between = cut.sources(split)
            sources += found
            gaps.append(between)
            treatment.cut_sentences += split.halved
            treatment.preserved += len(cut.kept)
        if len(sources) > 1:
            treatment.sentences = len(sources)
        return sources, CutText(gaps, document, treatment if treatment.ByteSize() else None)


class _BlockCutting:
    """Cuts a block of text, and keeps what is not translated."""

    def __init__(self, cutting: Cutting, block: MarkedText, document: Document | None, budget: Budget) -> None:
        self._cutting = cutting
        self._block = block
        self._document = document
        self._budget = budget
        found = cutting.patterns.find(block.text, budget) if cutting.patterns else []
        if cutting.preserves:
            found = without_overlaps(untranslatable(block.text), found)
        if block.marks and found:
            found = cut_at(found, sorted({place for mark in block.marks for place in (mark.start, mark.end)}))
        self._found: list[Kept] = found
        self._unmarked = MarkedBlock(MarkedText(block.text), found)
        self._unknown: dict[Span, list[Kept]] = {}  # of each sentence

    @property
    def kept(self) -> list[Kept]:
        """All parts that are kept."""
        return sorted([*self._found, *(part for parts in self._unknown.values() for part in parts)])

    def split(self, sentences: int) -> SplitText:
        """Cut the block into sentences."""
        cutting, text = self._cutting, self._block.text
        if cutting.splits is False:
            span = (len(text) - len(text.lstrip()), len(text.rstrip()))
            ids = self._encode([span])[0] if span[0] < span[1] else []
            return SplitText((text,), (tuple(ids),), (), (span,)) if ids else SplitText((), (), (text,))
        limits = SplitLimits(cutting.tokens.source, CHARACTERS_PER_TOKEN * cutting.tokens.source, sentences)
        whole = cutting.splits is None and not maybe_several(text)
        return split_text(text, cutting.language, self._encode, limits, self._budget, kept=self._found, whole=whole)

    def sources(self, split: SplitText) -> tuple[list[Source], list[str]]:
        """Return the sentences of the block, and what stands between them."""
        block = MarkedBlock(self._block, self.kept)
        escape = self._document.escape if self._document else str
        sources = []
        last = -1
        for (start, end), ids in zip(split.spans, split.source_ids, strict=True):
            marked = block.sentence(start, end, last).marked
            last = end
            if marked.marks or self._document:
                sources.append(Source(marked.text, ids, marked=marked, escape=escape))
            else:
                sources.append(Source(marked.text, ids))
        return sources, block.gaps(split.spans, escape)

    def _encode(self, spans: Sequence[Span]) -> list[list[int]]:
        """Return the tokens of sentences without what is kept; none if only what is kept has letters or digits."""
        block = self._unmarked
        taken = [block.sentence(*span) for span in spans]
        texts = [
            "" if each.marked.marks and not any(map(str.isalnum, each.marked.text)) else each.marked.text
            for each in taken
        ]
        encoded = tokenize(self._cutting.pair.encode, texts, self._budget)
        if self._cutting.preserves:
            for place, ids in enumerate(encoded):
                if self._cutting.unknown in ids and len(ids) <= self._cutting.tokens.source:
                    encoded[place] = self._without_unknown(spans[place], taken[place], ids)
        return encoded

    def _without_unknown(self, span: Span, taken: TakenOut, ids: list[int]) -> list[int]:
        """Take the unknown parts out of a sentence, and return the tokens of the rest."""
        pair, unknown = self._cutting.pair, self._cutting.unknown
        found: list[Kept] = []
        within = self._unmarked.kept_in(*span)
        for _ in range(_SEARCHES):
            self._budget.check()
            text = taken.marked.text
            parts = unknown_parts(text, ids, pair.source_surfaces(text), unknown)
            if not parts:
                break
            for start, end in parts:
                found += _in_block(taken, start, end)
            block = MarkedBlock(MarkedText(self._block.text), sorted([*within, *found]))
            taken = block.sentence(*span)
            text = taken.marked.text
            ids = pair.encode([text])[0] if any(map(str.isalnum, text)) else []
            if unknown not in ids:
                break
        places = sorted({place for mark in self._block.marks for place in (mark.start, mark.end)})
        self._unknown[span] = cut_at(sorted(found), places) if places else sorted(found)
        return ids


def _in_block(taken: TakenOut, start: int, end: int) -> list[Kept]:
    """Return where a part of a sentence is in the block: several parts if something is taken out of its middle."""
    found: list[Kept] = []
    for place in range(start, end):
        at = taken.in_block(place)
        if found and found[-1].end == at:
            found[-1] = found[-1]._replace(end=at + 1)
        else:
            found.append(Kept(at, at + 1))
    return found
