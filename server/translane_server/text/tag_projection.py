"""Puts the marks of a source into its translation, by the alignment of tokens.

Every mark is in the translation exactly once, byte for byte, within the marks that it was within in the source. Marks
side by side may change their order, as words do. No mark is within a word.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import regex

from translane_server.text.characters import UNSPACED, UNSPACED_LETTER
from translane_server.text.marked_text import Mark, MarkedText
from translane_server.text.placeholders import Span

_LETTER = rf"(?:(?![{UNSPACED}])[\p{{L}}\p{{N}}_]\p{{M}}*)"
# White space, a word of a script that writes spaces, or any other character.
_ATOM = regex.compile(rf"\s+|{_LETTER}+(?:['’\-]{_LETTER}+)*|\X")
_WORD = regex.compile(r"[\p{L}\p{N}]")
SPACED_LETTER = regex.compile(_LETTER)

# How much the alignment of punctuation counts, beside that of a word.
_PUNCTUATION = 0.25


@dataclass(frozen=True, slots=True)
class AlignedText:
    """A translation as tokens, with the part of the source text that each token comes from."""

    text: str
    # T texts, one for each token. They concatenate to the translation, but for white space at its ends
    pieces: Sequence[str]
    # T spans of the source text [characters]; None for a token that comes from no part of it
    sources: Sequence[tuple[int, int] | None]
    whole: Collection[int] = ()  # the numbers of the tokens that no mark may cut: each is all that was kept of a place


@dataclass(frozen=True, slots=True)
class Atom:
    """A part of the translation that no mark cuts: a word, white space or a sign."""

    end: int  # where it ends [characters]
    sources: tuple[int, ...]  # the numbers of the source places that it comes from
    weight: float  # how much its alignment counts


def atoms_of(target: AlignedText, numbers: Mapping[int, int]) -> list[Atom]:
    """Cut a translation into atoms. `numbers` has the number of each source place, by its doubled middle."""
    text = target.text
    together = "".join(target.pieces)
    start = len(together.lstrip()) - len(together)
    spans: list[tuple[int, int, int]] = []  # of tokens: start, end, number of the source place
    inner: set[int] = set()  # places within a token
    uncut: set[int] = set()  # places where no atom ends
    for number, (piece, source) in enumerate(zip(target.pieces, target.sources, strict=True)):
        end = start + len(piece)
        if number in target.whole:
            uncut.update(range(start + 1, end))
        if source:
            spans.append((start, end, numbers[sum(source)]))
        inner.update(range(start + 1, end))
        start = end
    found: list[Atom] = []
    token = 0
    begin = 0
    for match in _ATOM.finditer(text):
        end = match.end()
        if end < len(text) and (end in uncut or (end in inner and _is_unspaced(text, end))):
            continue  # the characters of a token stay together
        part = text[begin:end]
        while token < len(spans) and spans[token][1] <= begin:
            token += 1
        sources = []
        if not part.isspace():
            for number in range(token, len(spans)):
                if spans[number][0] >= end:
                    break
                sources.append(spans[number][2])
        found.append(Atom(end, tuple(sources), 1.0 if _WORD.search(part) else _PUNCTUATION))
        begin = end
    return found


def _is_unspaced(text: str, place: int) -> bool:
    """Whether both characters beside a place belong to scripts that write no spaces."""
    return all(UNSPACED_LETTER.match(character) for character in (text[place - 1], text[place]))


def place(marked: MarkedText, target: AlignedText, *, spaced: bool) -> str:
    """Return the translation of `marked.text` with the marks of `marked`.

    `spaced` says whether the target language writes spaces between words. The time grows with the number of target
    tokens times that of different places with marks.
    """
    if not marked.marks:
        return target.text
    return _Placing(marked, target, spaced=spaced).text()


class _Placing:
    """Finds the places of the marks of one sentence. A place is a number of atoms before it."""

    def __init__(self, marked: MarkedText, target: AlignedText, *, spaced: bool) -> None:
        self._source = marked.text
        self._marks = marked.marks
        self._target = target.text
        self._spaced = spaced
        # the middles of the source tokens that anything is aligned to, in doubled characters
        self._middles = sorted({sum(span) for span in target.sources if span})
        self._atoms = atoms_of(target, {middle: number for number, middle in enumerate(self._middles)})
        self._ends = [0, *(atom.end for atom in self._atoms)]
        self._children: dict[int, list[int]] = {}
        for number, mark in enumerate(self._marks):
            self._children.setdefault(mark.parent, []).append(number)
        self._remembered: dict[tuple[int, int, int, int], Span] = {}

    def text(self) -> str:
        """Return the translation with its marks."""
        spans = [(0, 0)] * len(self._marks)
        waiting = [(-1, 0, len(self._atoms))]
        while waiting:
            parent, low, high = waiting.pop()
            for number, span in self._apart(self._children.get(parent, ()), low, high):
                spans[number] = span
                waiting.append((number, *span))
        return "".join(self._written(spans))

    def _apart(self, numbers: Sequence[int], low: int, high: int) -> list[tuple[int, Span]]:
        """Return the spans of marks side by side, between the places `low` and `high`, so that none overlaps another.

        Each span comes with the number of its mark.
        """
        kept: list[tuple[int, Span]] = []
        inside = []
        for number in numbers:  # what goes on beyond the text is first or last
            mark = self._marks[number]
            if mark.is_single or (mark.opening and mark.closing):
                inside.append(number)
                continue
            start, end = self._span(mark, low, high)
            kept.append((number, (start, end)))
            if not mark.opening:
                low = end
            else:
                high = start
        wanted = [(number, self._span(self._marks[number], low, high)) for number in inside]
        pairs: list[tuple[int, Span]] = []
        for number, (start, end) in sorted(
            (each for each in wanted if each[1][0] < each[1][1]), key=lambda each: each[1]
        ):
            if pairs and start < pairs[-1][1][1]:
                before, (first, last) = pairs[-1]
                if first < start and end < last:
                    pairs[-1] = (before, (first, start))  # the longer one gives way
                else:
                    start, end = last, max(last, end)
            pairs.append((number, (start, end)))
        starts = [start for _, (start, _) in pairs]
        empty = [(number, self._outside(at, pairs, starts)) for number, (at, end) in wanted if at == end]
        return [*kept, *pairs, *((number, (at, at)) for number, at in empty)]

    def _outside(self, at: int, pairs: Sequence[tuple[int, Span]], starts: Sequence[int]) -> int:
        """Return the place next to `at` that is not within a pair."""
        before = bisect_left(starts, at) - 1
        if before < 0:
            return at
        first, last = pairs[before][1]
        return at if at >= last else first if at - first < last - at else last

    def _span(self, mark: Mark, low: int, high: int) -> Span:
        """Return the best span for `mark` between two places."""
        if mark.is_single or mark.start == mark.end:
            at = self._best_place(self._number(mark.start), low, high)
            at += self._step_over_space(mark, at, low, high)
            return at, at
        key = (self._number(mark.start), self._number(mark.end), low, high)
        if key not in self._remembered:
            self._remembered[key] = self._best_span(*key)
        start, end = self._remembered[key]
        if start == end:
            start = end = self._best_place(key[0], low, high)
        if not mark.opening:
            start = low
        if not mark.closing:
            end = high
        return start, end

    def _number(self, place: int) -> int:
        """Return how many source places with alignments are before a place of the source."""
        return bisect_left(self._middles, 2 * place)

    def _best_span(self, first: int, last: int, low: int, high: int) -> Span:
        """Return the span that has most of what comes from source places first … last - 1, and least of the rest."""
        best, best_span = 0.0, (low, low)
        total, start = 0.0, low
        for number in range(low, high):
            atom = self._atoms[number]
            for source in atom.sources:
                total += atom.weight if first <= source < last else -atom.weight
            if total <= 0:
                total, start = 0.0, number + 1
            elif total > best:
                best, best_span = total, (start, number + 1)
        start, end = best_span
        while start < end and not self._atoms[start].sources:
            start += 1
        return start, end

    def _best_place(self, source: int, low: int, high: int) -> int:
        """Return the place that best divides what comes from before a source place from what comes from after it.

        What comes from near the source place counts most.
        """
        key = (source, -1, low, high)
        if key in self._remembered:
            return self._remembered[key][0]
        changes = [0.0]
        for atom in self._atoms[low:high]:
            change = 0.0
            for number in atom.sources:
                near = atom.weight / (1 + (source - 1 - number if number < source else number - source)) ** 2
                change += -near if number < source else near
            changes.append(change)
        costs = list(accumulate(changes))
        at = low + min(range(len(costs)), key=costs.__getitem__)
        self._remembered[key] = (at, at)
        return at

    def _step_over_space(self, mark: Mark, at: int, low: int, high: int) -> int:
        """Return 1 or -1 if `mark` touched the word after or before it, and white space is between the two at `at`."""
        before, after = self._source[mark.start - 1 : mark.start], self._source[mark.start : mark.start + 1]
        touches_next = not mark.space_after and SPACED_LETTER.match(after) is not None
        touches_last = not mark.space_before and SPACED_LETTER.match(before) is not None
        if touches_next and not touches_last and at < high and self._is_space(at):
            return 1
        if touches_last and not touches_next and at > low and self._is_space(at - 1):
            return -1
        return 0

    def _is_space(self, number: int) -> bool:
        return self._target[self._ends[number] : self._ends[number + 1]].isspace()

    def _written(self, spans: Sequence[Span]) -> list[str]:
        """Return the parts of the translation with its marks."""
        parts: list[str] = []
        done = 0  # characters of the translation that are written
        single = False  # whether the last part is a single thing
        last: Mark | None = None

        def write_until(place: int) -> None:
            nonlocal done, single
            if self._ends[place] > done:
                parts.append(self._target[done : self._ends[place]])
                done = self._ends[place]
                single = False

        # what is still to be done, the next at the end: a mark to open, or one to close (~number)
        waiting = self._in_order(-1, spans)
        while waiting:
            number = waiting.pop()
            if number < 0:
                write_until(spans[~number][1])
                parts.append(self._marks[~number].closing)
                continue
            mark = self._marks[number]
            write_until(spans[number][0])
            if not mark.is_single:
                parts.append(mark.opening)
                waiting.append(~number)
                waiting += self._in_order(number, spans)
                continue
            if single and last is not None:
                parts.append(" " if last.space_after or mark.space_before else "")
            elif self._needs_space(mark, done, before=True):
                parts.append(" ")
            parts.append(mark.opening)
            follows = waiting and waiting[-1] >= 0 and self._marks[waiting[-1]].is_single
            if not (follows and spans[waiting[-1]] == spans[number]) and self._needs_space(mark, done, before=False):
                parts.append(" ")
            single, last = True, mark
        write_until(len(self._atoms))
        return parts

    def _in_order(self, parent: int, spans: Sequence[Span]) -> list[int]:
        """Return the numbers of the children of a mark, the last one first."""
        children = self._children.get(parent, [])
        return sorted(children, key=lambda number: (*spans[number], number), reverse=True)

    def _needs_space(self, mark: Mark, place: int, *, before: bool) -> bool:
        """Whether a single thing at a place of the translation needs a space before it, or after it."""
        neighbour = self._target[place - 1 : place] if before else self._target[place : place + 1]
        if not neighbour or neighbour.isspace():
            return False
        was_space = mark.space_before if before else mark.space_after
        if not self._spaced:
            return was_space and SPACED_LETTER.match(neighbour) is not None
        source = self._source[mark.start - 1 : mark.start] if before else self._source[mark.start : mark.start + 1]
        # A text that starts or ends here, or whose script writes no spaces, does not say that there is none. Neither
        # does a bracket that the translation lacks.
        is_lost_sign = source != neighbour and not SPACED_LETTER.match(source)
        says_nothing = not source or is_lost_sign or UNSPACED_LETTER.match(source)
        if not (was_space or says_nothing):
            return False
        closing = unicodedata.category(neighbour) in {"Pe", "Pf"} or neighbour in ",.;:!?…%"
        opening = unicodedata.category(neighbour) in {"Ps", "Pi"}
        return not (opening if before else closing)
