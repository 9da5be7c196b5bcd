"""Halves sentences that are too long for a model."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from translane_server.core.budget import Budget
from translane_server.text.graphemes import boundary_before, is_boundary
from translane_server.text.kept import Kept
from translane_server.text.sentence_ends import stripped

_WHITE_SPACE = re.compile(r"\s+")
# Ends of clauses: punctuation, and closing quotes and brackets after it. In scripts that write a space after
# punctuation, the space must follow, because the comma in 1,000 ends no clause.
_CLAUSE_END = re.compile(r"(?:[，、；：。！？…，،؛؟۔।॥။፣፤]|[,;:.!?–—](?=[)\]\"'”’»]*\s))[)\]\"'”’»）」』】》〉]*")

_Span = tuple[int, int]

# Returns the tokens of the parts of the text at these places; no tokens for a part that needs no translation.
Encode = Callable[[Sequence[_Span]], Sequence[Sequence[int]]]

# A span, and its tokens; None if the span is too long to be tokenized.
_Piece = tuple[_Span, tuple[int, ...] | None]


class TooManySentencesError(ValueError):
    """The text has more sentences than are accepted."""


class LongCharacterError(ValueError):
    """A single character is too long to be tokenized. `length` is its number of code points."""

    def __init__(self, length: int) -> None:
        self.length = length
        super().__init__(f"a character of {length} code points")


@dataclass(frozen=True, slots=True)
class SplitLimits:
    """Limits of the sentences that a text is cut into.

    Attributes:
        tokens: maximum tokens of a sentence.
        characters: maximum characters of a sentence. A longer one is not tokenized, but halved first.
        sentences: maximum sentences of the text.
    """

    tokens: int
    characters: int
    sentences: int


class Halving:
    """Halves sentences until they are within the limits.

    Args:
        text: the text of the sentences, in which nothing is left of the kept parts.
        encode: returns the tokens of parts of the text.
        limits: the limits of the sentences.
        kept: parts that are not cut and do not count.
        budget: is checked between the pieces of the work.
    """

    def __init__(self, text: str, encode: Encode, limits: SplitLimits, kept: Sequence[Kept], budget: Budget) -> None:
        self._text = text
        self._encode = encode
        self._limits = limits
        self._budget = budget
        self._kept = kept
        self._starts = [part.start for part in kept]
        self._lengths = list(accumulate((part.end - part.start for part in kept), initial=0))

    def pieces(self, spans: Sequence[_Span]) -> tuple[list[tuple[_Span, tuple[int, ...]]], int]:
        """Return the sentences at `spans` in pieces within the limits, without the pieces that have no tokens.

        With them comes how many sentences were halved.
        """
        pieces = self._tokens(spans)
        halved = 0
        while True:
            if sum(self._least_sentences(piece) for piece in pieces) > self._limits.sentences:  # saves the halving
                raise TooManySentencesError
            halves: list[tuple[_Span, ...]] = []
            for piece in pieces:
                self._budget.check()
                halves.append(self._halves(*piece[0]) if self._is_too_long(piece) else ())
            if not any(halves):
                return _tokenized(pieces), halved
            halved = halved or sum(map(bool, halves))
            smaller = iter(self._tokens([half for pair in halves for half in pair]))
            pieces = [
                piece
                for whole, pair in zip(pieces, halves, strict=True)
                for piece in ([next(smaller) for _ in pair] if pair else [whole])
            ]

    def _tokens(self, spans: Sequence[_Span]) -> list[_Piece]:
        short = [self._length(*span) <= self._limits.characters for span in spans]
        encoded = [span for span, is_short in zip(spans, short, strict=True) if is_short]
        ids = iter(self._encode(encoded) if encoded else ())
        return [(span, tuple(next(ids)) if is_short else None) for span, is_short in zip(spans, short, strict=True)]

    def _length(self, start: int, end: int) -> int:
        """Return how many characters are not of kept parts."""
        first, last = bisect_left(self._starts, start), bisect_left(self._starts, end)
        return end - start - (self._lengths[last] - self._lengths[first])

    def _is_too_long(self, piece: _Piece) -> bool:
        _, ids = piece
        return ids is None or len(ids) > self._limits.tokens

    def _least_sentences(self, piece: _Piece) -> int:
        """Return how many sentences a piece becomes at least."""
        _, ids = piece
        return 1 if ids is None else -(-len(ids) // self._limits.tokens)

    def _halves(self, start: int, end: int) -> tuple[_Span, ...]:
        """Return the two halves of a sentence, cut at the best place near its middle; none if it cannot be cut."""
        cut = start + _cut(self._text[start:end])
        number = bisect_left(self._starts, cut) - 1
        if number >= 0 and self._kept[number].end > cut:  # within a kept part: beside it
            first, last, _ = self._kept[number]
            cut = first if first > start else last
        parts = (stripped(self._text, start, cut), stripped(self._text, cut, end)) if cut < end else ()
        return tuple(part for part in parts if part) if all(parts) else ()


def _tokenized(pieces: Sequence[_Piece]) -> list[tuple[_Span, tuple[int, ...]]]:
    """Return the pieces that have tokens."""
    found: list[tuple[_Span, tuple[int, ...]]] = []
    for (start, end), ids in pieces:
        if ids is None:
            raise LongCharacterError(end - start)
        if ids:
            found.append(((start, end), ids))
    return found


def _cut(sentence: str) -> int:
    middle, quarter = len(sentence) // 2, len(sentence) // 4
    for pattern in (_CLAUSE_END, _WHITE_SPACE):
        ends = [match.end() for match in pattern.finditer(sentence, middle - quarter, middle + quarter)]
        if near := [end for end in ends if is_boundary(sentence, end)]:
            return min(near, key=lambda end: abs(end - middle))
    if before := boundary_before(sentence, middle):
        return before
    return next(index for index in range(middle + 1, len(sentence) + 1) if is_boundary(sentence, index))
