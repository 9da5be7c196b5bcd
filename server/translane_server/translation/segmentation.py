"""Cuts texts into the sentences that a model translates, and merges translations of sentences into texts."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from translane.results import AlignmentPoint, FinishReason, Hypothesis, Translation, Treatment
from translane_server.core.budget import Budget
from translane_server.core.errors import FieldViolation, InvalidRequestError
from translane_server.core.quality_estimate import combined_quality
from translane_server.text.characters import target_gaps
from translane_server.text.marked_text import MarkedBlock, MarkedText, Span, TakenOut
from translane_server.text.markup.document import Document
from translane_server.text.placeholders import (
    Kept,
    PreservePatterns,
    cut_at,
    may_preserve,
    untranslatable,
    without_overlaps,
)
from translane_server.text.sentences import LongCharacterError, SplitLimits, SplitText, maybe_several, split_text
from translane_server.text.unknown_parts import unknown_parts
from translane_server.translation.languages import LanguagePair
from translane_server.translation.limits import CHARACTERS_PER_TOKEN, TokenLimits
from translane_server.translation.terms import SentenceTerms

# The number of a hypothesis, and the combination of hypotheses before it.
_Chain = tuple[int, "_Chain | None"]


@dataclass(frozen=True, slots=True)
class CutText:
    """A text as sentences, and what stands between them.

    Attributes:
        gaps: for each block of the text, which has n sentences, the n + 1 texts before, between and after them.
        document: what the translations of the blocks are put into; None for plain text, which is one block.
        treatment: what was done with the text; None if nothing was.
    """

    gaps: Sequence[Sequence[str]]
    document: Document | None = None
    treatment: Treatment | None = None

    def join(self, translations: Sequence[str], target_language: str) -> str:
        """Join the sentences' translations to the translation of the text."""
        blocks = []
        done = 0
        for gaps in self.gaps:
            first, *others = target_gaps(gaps, target_language)
            texts = translations[done : done + len(others)]
            done += len(others)
            blocks.append(first + "".join(text + gap for text, gap in zip(texts, others, strict=True)))
        return self.document.render(blocks) if self.document else "".join(blocks)


def merge_translations(
    text: CutText, translations: Sequence[Translation], target_language: str, *, ranked: bool = True
) -> Translation:
    """Merge the translations of a text's sentences into one.

    The score is the sum of the sentences' scores, if they have scores. The estimated quality is the mean of the
    sentences' estimates, by their source tokens. Tokens are concatenated, and alignments refer to
    positions in the concatenated tokens.

    Args:
        text: the text.
        translations: the sentences' translations.
        target_language: a BCP-47 tag.
        ranked: whether hypotheses are combined by their scores: the result has the best combinations. Otherwise, the
            first hypotheses are combined, then the second ones, and so on.
    """
    return Translation(
        tuple(
            _merged(text, translations, numbers, target_language)
            for numbers in _combinations(translations, ranked=ranked)
        ),
        source_tokens=sum(each.source_tokens for each in translations),
        source_pieces=tuple(piece for each in translations for piece in each.source_pieces),
        treatment=text.treatment,
    )


def _combinations(translations: Sequence[Translation], *, ranked: bool) -> list[tuple[int, ...]]:
    """Return which hypothesis of each sentence is taken for each hypothesis of the text."""
    counts = [len(each.hypotheses) for each in translations]
    if max(counts, default=1) == 1:
        return [(0,) * len(counts)]
    if not ranked:
        return [(number,) * len(counts) for number in range(min(counts))]
    return best_combinations([[one.score or 0.0 for one in each.hypotheses] for each in translations], max(counts))


def _merged(
    text: CutText, translations: Sequence[Translation], numbers: Sequence[int], target_language: str
) -> Hypothesis:
    """Return the hypothesis of the text that has the hypothesis `numbers[i]` of sentence i."""
    finish_reason = FinishReason.END_OF_SENTENCE
    score, source_tokens, target_tokens, texts = 0.0, 0, 0, []
    tokens: list[str] = []
    log_probs: list[float] = []
    alignment = []
    has_score = bool(translations)  # sentences with terms may have scores where others have none
    for translation, number in zip(translations, numbers, strict=True):
        hypothesis = translation.hypotheses[number]
        texts.append(hypothesis.text)
        has_score = has_score and hypothesis.score is not None
        score += hypothesis.score or 0.0
        tokens += hypothesis.tokens
        log_probs += hypothesis.token_log_probs
        alignment += [
            AlignmentPoint(source_tokens + point.source_token, target_tokens + point.target_token, point.weight)
            for point in hypothesis.alignment
        ]
        ended = hypothesis.finish_reason == FinishReason.END_OF_SENTENCE
        if not ended:
            finish_reason = hypothesis.finish_reason
        # Tokens are there only if the request asks for them. Every token but the end-of-sentence token is aligned.
        target_tokens += len(hypothesis.tokens) or len(hypothesis.alignment) + ended
        source_tokens += translation.source_tokens
    chosen = [each.hypotheses[number] for each, number in zip(translations, numbers, strict=True)]
    quality = None
    if any(each.quality is not None for each in chosen):
        quality = combined_quality(
            (each.quality or 0.0, translation.source_tokens)
            for each, translation in zip(chosen, translations, strict=True)
        )
    return Hypothesis(
        text.join(texts, target_language),
        score if has_score else None,
        finish_reason,
        tuple(tokens),
        tuple(log_probs),
        tuple(alignment),
        quality,
    )


def best_combinations(scores: Sequence[Sequence[float]], most: int) -> list[tuple[int, ...]]:
    """Return the combinations of one hypothesis of each sentence, those with the highest sum of scores first.

    The time grows with the number of sentences times `most`.

    Args:
        scores: the scores of each sentence's hypotheses, highest first; n lists.
        most: how many combinations are returned, if there are as many.

    Returns:
        Combinations of n numbers of hypotheses.
    """
    best: list[tuple[float, _Chain | None]] = [(0.0, None)]
    for of_sentence in scores:
        # Both lists have their best first, so the best sum that is left is one of those beside the sums that are taken.
        waiting = [(-best[0][0] - of_sentence[0], 0, 0)]
        extended: list[tuple[float, _Chain | None]] = []
        while waiting and len(extended) < most:
            cost, hypothesis, before = heapq.heappop(waiting)
            extended.append((-cost, (hypothesis, best[before][1])))
            if before + 1 < len(best):
                heapq.heappush(waiting, (-best[before + 1][0] - of_sentence[hypothesis], hypothesis, before + 1))
            if before == 0 and hypothesis + 1 < len(of_sentence):
                heapq.heappush(waiting, (-best[0][0] - of_sentence[hypothesis + 1], hypothesis + 1, 0))
        best = extended
    return [_numbers(chain) for _, chain in best]


def _numbers(chain: _Chain | None) -> tuple[int, ...]:
    numbers = []
    while chain is not None:
        number, chain = chain
        numbers.append(number)
    return tuple(reversed(numbers))


SPLIT_ADVICE = "; split_sentences cuts it into sentences"

# How often a sentence is searched for unknown characters. Tokens around a part that is taken out may be others.
_SEARCHES = 3

# Texts that are tokenized at once, unless a single text is longer [characters]. They take some tenths of a second.
_PART = 65536

Encode = Callable[[Sequence[str]], list[list[int]]]


@dataclass(slots=True)
class Segment:
    """A sentence to translate, as the reader cuts it and as the answer needs it.

    Attributes:
        text: the sentence.
        ids: its tokens.
        surfaces: the part of the text that each token stands for; None until somebody needs them.
        marked: the text and its marks, which are put into the translation; None if nothing was taken out of it.
        escape: makes translated text fit the format of the request.
        terms: the terms that occur in it; None if the request has no terms.
    """

    text: str
    ids: Sequence[int]
    surfaces: Sequence[str] | None = None
    marked: MarkedText | None = None
    escape: Callable[[str], str] = str
    terms: SentenceTerms | None = None


@dataclass(frozen=True)
class Segmentation:
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
    ) -> tuple[list[Segment], CutText]:
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
        sources: list[Segment] = []
        gaps = []
        halved = preserved = 0
        for block in blocks:
            cut = _BlockSegmentation(self, block, document, budget)
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
            halved += split.halved
            preserved += len(cut.kept)
        treatment = None
        if len(sources) > 1 or halved or preserved:
            treatment = Treatment(len(sources) if len(sources) > 1 else 0, halved, preserved)
        return sources, CutText(gaps, document, treatment)


class _BlockSegmentation:
    """Cuts a block of text, and keeps what is not translated."""

    def __init__(
        self, segmentation: Segmentation, block: MarkedText, document: Document | None, budget: Budget
    ) -> None:
        self._segmentation = segmentation
        self._block = block
        self._document = document
        self._budget = budget
        found = segmentation.patterns.find(block.text, budget) if segmentation.patterns else []
        if segmentation.preserves:
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
        segmentation, text = self._segmentation, self._block.text
        if segmentation.splits is False:
            span = (len(text) - len(text.lstrip()), len(text.rstrip()))
            ids = self._encode([span])[0] if span[0] < span[1] else []
            return SplitText((text,), (tuple(ids),), (), (span,)) if ids else SplitText((), (), (text,))
        limits = SplitLimits(segmentation.tokens.source, CHARACTERS_PER_TOKEN * segmentation.tokens.source, sentences)
        whole = segmentation.splits is None and not maybe_several(text)
        return split_text(
            text, segmentation.language, self._encode, limits, self._budget, kept=self._found, whole=whole
        )

    def sources(self, split: SplitText) -> tuple[list[Segment], list[str]]:
        """Return the sentences of the block, and what stands between them."""
        block = MarkedBlock(self._block, self.kept)
        escape = self._document.escape if self._document else str
        sources = []
        last = -1
        for (start, end), ids in zip(split.spans, split.source_ids, strict=True):
            marked = block.sentence(start, end, last).marked
            last = end
            if marked.marks or self._document:
                sources.append(Segment(marked.text, ids, marked=marked, escape=escape))
            else:
                sources.append(Segment(marked.text, ids))
        return sources, block.gaps(split.spans, escape)

    def _encode(self, spans: Sequence[Span]) -> list[list[int]]:
        """Return the tokens of sentences without what is kept; none if only what is kept has letters or digits."""
        block = self._unmarked
        taken = [block.sentence(*span) for span in spans]
        texts = [
            "" if each.marked.marks and not any(map(str.isalnum, each.marked.text)) else each.marked.text
            for each in taken
        ]
        encoded = tokenize(self._segmentation.pair.encode, texts, self._budget)
        if self._segmentation.preserves:
            for place, ids in enumerate(encoded):
                if self._segmentation.unknown in ids and len(ids) <= self._segmentation.tokens.source:
                    encoded[place] = self._without_unknown(spans[place], taken[place], ids)
        return encoded

    def _without_unknown(self, span: Span, taken: TakenOut, ids: list[int]) -> list[int]:
        """Take the unknown parts out of a sentence, and return the tokens of the rest."""
        pair, unknown = self._segmentation.pair, self._segmentation.unknown
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


def tokenize(encode: Encode, texts: Sequence[str], budget: Budget) -> list[list[int]]:
    """Return the tokens of each text.

    Args:
        encode: returns the tokens of texts.
        texts: the texts.
        budget: is checked before each part.
    """
    if not texts:
        return []
    if sum(map(len, texts)) <= _PART:
        budget.check()
        return encode(texts)
    encoded = []
    for part in _parts(texts):
        budget.check()
        encoded += encode(part)
    return encoded


def _parts(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield the texts, in order, in lists that are as long as may be."""
    part: list[str] = []
    characters = 0
    for text in texts:
        if part and characters + len(text) > _PART:
            yield part
            part, characters = [], 0
        part.append(text)
        characters += len(text)
    if part:
        yield part
