"""Cuts texts into the sentences that a model translates, and takes out of them what is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from translane.results import Treatment
from translane_server.core.budget import Budget
from translane_server.core.errors import FieldViolation, InvalidRequestError
from translane_server.text.characters import target_gaps
from translane_server.text.marked_text import MarkedBlock, MarkedText, TakenOut
from translane_server.text.markup.document import Document
from translane_server.text.placeholders import Kept, Kind, Span, cut_at, untranslatable, without_overlaps
from translane_server.text.scripts import untold_letters
from translane_server.text.sentences import LongCharacterError, SplitLimits, SplitText, maybe_several, split_text
from translane_server.text.tokenizer import tokenize
from translane_server.text.unknown_parts import unknown_parts, with_left_out
from translane_server.translation.limits import CHARACTERS_PER_TOKEN
from translane_server.translation.plan import RequestPlan, Segment

SPLIT_ADVICE = "; split_sentences cuts it into sentences"

# How often a sentence is searched for unknown characters. Tokens around a part that is taken out may be others.
_SEARCHES = 3


@dataclass(slots=True)
class PreparedText:
    """A text as sentences to decode: at most one sentence, unless the text was cut."""

    segments: Sequence[Segment]
    # for each block of the text, which has n sentences, the n + 1 texts before, between and after them; None if the
    # text is one sentence as it is.
    gaps: Sequence[Sequence[str]] | None = None
    # what the translations of the blocks are put into; None for plain text, which is one block
    document: Document | None = None
    treatment: Treatment | None = None  # what was done with the text; None if nothing was
    written: str | None = None  # the text as it was written, if something of it may have been preserved

    def join(self, translations: Sequence[str], target_language: str) -> str:
        """Join the translations of the sentences of a text that was cut."""
        blocks = []
        done = 0
        for gaps in self.gaps or ():
            first, *others = target_gaps(gaps, target_language)
            texts = translations[done : done + len(others)]
            done += len(others)
            blocks.append(first + "".join(text + gap for text, gap in zip(texts, others, strict=True)))
        return self.document.render(blocks) if self.document else "".join(blocks)

    def stream_gaps(self, target_language: str) -> list[str] | None:
        """Return what a stream sends before, between and after the sentences; None if it sends the text at its end."""
        if self.gaps is None:
            return [""] * (len(self.segments) + 1)
        return None if self.document else target_gaps(self.gaps[0], target_language)


def cut(
    plan: RequestPlan, field: str, text: str, document: Document | None, sentences: int, budget: Budget
) -> PreparedText:
    """Cut a text.

    Args:
        plan: how texts are cut, and what of them is kept.
        field: the text's field, which errors name.
        text: the text.
        document: the text as blocks, if it has markup.
        sentences: maximum sentences.
        budget: is checked between the pieces of the work.

    Raises:
        InvalidRequestError: a part that cannot be cut is too long, or a text that stays whole has too many tokens.
        TooManySentencesError: the text has more than `sentences`.
    """
    limit = plan.tokens.source
    segments: list[Segment] = []
    gaps = []
    halved = preserved = 0
    for marked in document.blocks if document else (MarkedText(text),):
        block = _Block(plan, marked, document, budget)
        try:
            split = block.split(sentences - len(segments))
        except LongCharacterError as error:
            most = CHARACTERS_PER_TOKEN * limit
            problem = f"has a character of {error.length} code points, at most {most} are accepted"
            raise InvalidRequestError(FieldViolation(field, problem)) from None
        longest = max(map(len, split.source_ids), default=0)
        if longest > limit:
            what = f"has {longest} tokens" if plan.splits is False else f"has a character of {longest} tokens"
            problem = f"{what}, at most {limit} are accepted{SPLIT_ADVICE if plan.splits is False else ''}"
            raise InvalidRequestError(FieldViolation(field, problem))
        found, between = block.segments(split)
        segments += found
        gaps.append(between)
        halved += split.halved
        preserved += sum(part.kind is not Kind.LEFT_OUT for part in block.kept)
    several = len(segments) if len(segments) > 1 else 0
    treatment = Treatment(several, halved, preserved) if several or halved or preserved else None
    return PreparedText(segments, gaps, document, treatment, text)


class _Block:
    """Cuts a block of text, and keeps what is not translated."""

    def __init__(self, plan: RequestPlan, block: MarkedText, document: Document | None, budget: Budget) -> None:
        self._plan = plan
        self._block = block
        self._document = document
        self._budget = budget
        self._places = sorted({place for mark in block.marks for place in (mark.start, mark.end)})
        found = plan.patterns.find(block.text, budget) if plan.patterns else []
        if plan.preserves:
            found = without_overlaps(untranslatable(block.text), found)
        self._found = cut_at(found, self._places)
        self._unmarked = MarkedBlock(MarkedText(block.text), self._found)
        self._unknown: dict[Span, list[Kept]] = {}  # of each sentence

    @property
    def kept(self) -> list[Kept]:
        """All parts that are taken out."""
        return sorted([*self._found, *(part for parts in self._unknown.values() for part in parts)])

    def split(self, sentences: int) -> SplitText:
        """Cut the block into sentences."""
        plan, text = self._plan, self._block.text
        if plan.splits is False:
            span = (len(text) - len(text.lstrip()), len(text.rstrip()))
            ids = self._encode([span])[0] if span[0] < span[1] else []
            return SplitText((span,), (tuple(ids),)) if ids else SplitText((), ())
        limits = SplitLimits(plan.tokens.source, CHARACTERS_PER_TOKEN * plan.tokens.source, sentences)
        whole = plan.splits is None and not maybe_several(text)
        return split_text(text, plan.source_language, self._encode, limits, self._budget, kept=self._found, whole=whole)

    def segments(self, split: SplitText) -> tuple[list[Segment], list[str]]:
        """Return the sentences of the block, and what stands between them."""
        block = MarkedBlock(self._block, self.kept)
        escape = self._document.escape if self._document else str
        segments = []
        last = -1
        for (start, end), ids in zip(split.spans, split.source_ids, strict=True):
            marked = block.sentence(start, end, last).marked
            last = end
            has_marks = marked.marks or self._document
            segments.append(Segment(marked.text, ids, marked=marked if has_marks else None, escape=escape))
        return segments, block.gaps(split.spans, escape)

    def _encode(self, spans: Sequence[Span]) -> list[list[int]]:
        """Return the tokens of sentences without what is kept; none if only what is kept has letters or digits."""
        plan, unknown = self._plan, self._plan.special_ids.unk
        taken = [self._unmarked.sentence(*span) for span in spans]
        texts = [
            "" if each.marked.marks and not any(map(str.isalnum, each.marked.text)) else each.marked.text
            for each in taken
        ]
        encoded = tokenize(plan.pair.encode, texts, self._budget)
        if plan.preserves:
            for place, ids in enumerate(encoded):
                if unknown in ids and len(ids) <= plan.tokens.source:
                    encoded[place] = self._without_unknown(spans[place], taken[place], ids)
        return encoded

    def _without_unknown(self, span: Span, taken: TakenOut, ids: list[int]) -> list[int]:
        """Take the unknown parts out of a sentence, and return the tokens of the rest."""
        pair, unknown = self._plan.pair, self._plan.special_ids.unk
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
        unknown_here = sorted(found)
        if ids:  # or nothing is left, and the text is its own translation
            untold = untold_letters(self._plan.source_language, self._plan.target_language)
            unknown_here = with_left_out(self._block.text, span, unknown_here, within, untold)
        self._unknown[span] = cut_at(unknown_here, self._places)
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
