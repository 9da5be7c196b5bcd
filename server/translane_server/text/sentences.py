"""Cuts texts into sentences, and sentences that are too long into parts.

The library sentencex finds the ends of sentences. A line break always ends a sentence.

A text consists of sentences and of the gaps between them, so that nothing is lost. A sentence that is too long is
halved until its parts fit.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import sentencex

from translane_server.core.budget import UNLIMITED, Budget
from translane_server.text.characters import boundary_before, is_boundary
from translane_server.text.language_tags import language_of
from translane_server.text.numbers import WIDE_POINT, narrowed
from translane_server.text.placeholders import Kept, Kind, Span

# How much of a line sentencex gets at once [characters]. The time of sentencex grows with the square of this length.
_WINDOW = 4096

_LINE = re.compile(r"[^\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")
_WHITE_SPACE_CHARACTER = re.compile(r"\s")

# The number of a list item. sentencex takes the number for a sentence, but it is not translated.
_ITEM_NUMBER = re.compile(r"\(?[0-9]{1,3}[.)]")

# Signs of list items, which stay as they are.
_BULLET = re.compile(r"\s*[-*+•‣▪◦·–—]\s+")

# Ends of sentences that sentencex passes over: it takes these words for abbreviations of states, however they are
# written, and no digit for the start of a sentence where a script writes no space. Each pattern begins with what few
# places of a text have: it is then searched several times as fast.
_MISSED_ENDS = (
    re.compile(r"\.(?:(?<=\bme\.)|(?<=\bill\.)|(?<=\bmag\.)|(?<=\bmich\.))[\"'”’“»]*+\s++(?=[\"'“„‘«]?[A-ZÄÖÜ])"),
    re.compile(r"[。！？][”’」』】）》〉]*+\s*+(?=[0-9])"),
)

# Places where sentencex cuts: within a wide number, and after ordinals of German.
_WIDE_POINT = re.compile(WIDE_POINT)
_FALSE_END = re.compile(
    r"\.(?<=[0-9]\.)\s++(?=Jahrhundert|Lebensjahr|Geburtstag|Januar|Februar|März|April|Mai\b|Juni\b|Juli\b"
    r"|August|September|Oktober|November|Dezember)"
)

# What a text of several sentences has: a line break or the end of a sentence, and something after it. Only some scripts
# write a space after the end of a sentence. A bullet is no sentence, but it is cut off. No pattern tries a place twice.
_BREAK = re.compile(r"[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")
_SPACED_END = re.compile(r"[.!?…‥;\u037e·]")
_SIGNS_BEFORE_SPACE = re.compile(r"(?<![^\w\s])[^\w\s]++(?=\s++\S)")
_UNSPACED_END = re.compile(r"[。．！？｡؟۔।॥။።፧։՜՞᠃᠉…‼⁇⁈⁉][^\w\s]*\s*[^\s”’」』】）》〉\"')\]]")
# A text without any of these is one sentence. A set of characters is searched several times as fast as the patterns.
_MAYBE_END = re.compile(r"[\n\v\f\r\x1c-\x1e\x85\u2028\u2029.!?…‥;\u037e·。．！？｡؟۔।॥။።፧։՜՞᠃᠉‼⁇⁈⁉]")
_MAYBE_BULLET = frozenset("-*+•‣▪◦·–— \t\u3000\xa0")


def maybe_several(text: str) -> bool:
    """Whether `sentences` may find several sentences or a bullet in `text`. This is cheap."""
    end = _MAYBE_END.search(text)
    if end and end.end() < len(text) and _goes_on(text, end.start()):
        return True
    return text[:1] in _MAYBE_BULLET and _BULLET.match(text) is not None


def _goes_on(text: str, start: int) -> bool:
    """Whether anything may follow the end of a sentence, the first of which is at `start`."""
    if _UNSPACED_END.search(text, start):
        return True
    if (line := _BREAK.search(text, start)) and line.end() < len(text.rstrip()):
        return True
    signs = _SIGNS_BEFORE_SPACE.finditer(text)
    return any(_SPACED_END.search(text, match.start(), match.end()) for match in signs)


def sentences(text: str, language: str, kept: Sequence[Kept], budget: Budget) -> Iterator[Span]:
    """Yield the span of each sentence of `text`."""
    # A closing tag or an emoji belongs to the sentence that ends right before it.
    goes_on = {part.start: part.end for part in kept if part.kind in (Kind.CLOSING_TAG, Kind.EMOJI)}
    unseen = [part for part in kept if part.kind is not Kind.OTHER]
    starts = [part.start for part in unseen]
    for match in _LINE.finditer(text):
        if match.group().isspace():
            continue
        bullet = _BULLET.match(match.group())
        start = first = match.start() + (bullet.end() if bullet else 0)
        line = text[start : match.end()]
        of_line = unseen[bisect_left(starts, start) : bisect_left(starts, match.end())]
        for end in _ends_around(line, first, of_line, language, budget):
            while first + end in goes_on:
                end = goes_on[first + end] - first
            if is_boundary(line, end) and first + end > start:
                span = stripped(text, start, first + end)
                if span and not _ITEM_NUMBER.fullmatch(text, *span):
                    yield span
                start = first + end


def _ends_around(line: str, first: int, unseen: Sequence[Kept], language: str, budget: Budget) -> Iterator[int]:
    """Yield the end of each sentence of `line`, as if its tags and emoji `unseen`, in order, were not there.

    The line starts at `first` in the text, and the places of `unseen` are those of the text.
    """
    if not unseen:
        yield from _sentence_ends(line, language, budget)
        return
    removed = list(accumulate((part.end - part.start for part in unseen), initial=0))
    places = [part.start - first - before for part, before in zip(unseen, removed, strict=False)]
    ends = [0, *(part.end - first for part in unseen)]
    left = (
        "".join(line[start : part.start - first] for start, part in zip(ends, unseen, strict=False)) + line[ends[-1] :]
    )
    for end in _sentence_ends(left, language, budget):
        yield end + removed[bisect_left(places, end)]


def _sentence_ends(line: str, language: str, budget: Budget) -> Iterator[int]:
    """Yield the end of each sentence of `line`, in order. The last sentence ends with the line.

    The last sentence of a window may go on after the window, so the next window starts with this sentence. If the
    sentence is longer than half a window, the next window starts at the end of this window instead.
    """
    start = 0
    budget.check()
    while start + _WINDOW < len(line):
        budget.check()
        position = start
        for length in _segment(line[start : start + _WINDOW], language)[:-1]:
            position += length
            yield position
        start = position if position - start >= _WINDOW // 2 else start + _WINDOW
    for length in _segment(line[start:], language):
        start += length
        yield start


def _segment(line: str, language: str) -> list[int]:
    """Return the length of each sentence of `line`, including the white space after it."""
    # sentencex panics at some white space that is not ASCII, and a panic is not an Exception
    plain = _WHITE_SPACE_CHARACTER.sub(" ", line)
    try:
        lengths = list(map(len, sentencex.segment(language, plain)))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return [len(line)]
    if sum(lengths) != len(line):
        return [len(line)]
    missed = {match.end() for pattern in _MISSED_ENDS for match in pattern.finditer(plain)}
    false = {match.end() for match in _WIDE_POINT.finditer(plain)}
    if language == "de":
        false.update(match.end() for match in _FALSE_END.finditer(plain))
    if not missed and not false:
        return lengths
    return [end - start for start, end in pairwise(sorted({0, len(line), *accumulate(lengths), *missed} - false))]


def stripped(text: str, start: int, end: int) -> Span | None:
    """Return the span without white space around it, or None if nothing is left."""
    part = text[start:end]
    start += len(part) - len(part.lstrip())
    return (start, start + len(part.strip())) if part.strip() else None


_WHITE_SPACE = re.compile(r"\s+")
# Ends of clauses: punctuation, and closing quotes and brackets after it. In scripts that write a space after
# punctuation, the space must follow, because the comma in 1,000 ends no clause.
_CLAUSE_END = re.compile(r"(?:[，、；：。！？…，،؛؟۔।॥။፣፤]|[,;:.!?–—](?=[)\]\"'”’»]*\s))[)\]\"'”’»）」』】》〉]*")


_NUMBER = re.compile(r"[0-9]+(?:[.,:][0-9]+)*")


# Returns the tokens of the parts of the text at these places; no tokens for a part that needs no translation.
Encode = Callable[[Sequence[Span]], Sequence[Sequence[int]]]

# A span, and its tokens; None if the span is too long to be tokenized.
_Piece = tuple[Span, tuple[int, ...] | None]


class TooManySentencesError(ValueError):
    """The text has more sentences than are accepted."""


class LongCharacterError(ValueError):
    """A single character is too long to be tokenized. `length` is its number of code points."""

    def __init__(self, length: int) -> None:
        self.length = length
        super().__init__(f"a character of {length} code points")


@dataclass(frozen=True, slots=True)
class SplitLimits:
    """Limits of the sentences that a text is cut into."""

    tokens: int  # of a sentence
    characters: int  # of a sentence. A longer one is not tokenized, but halved first
    sentences: int  # of the text


class Halving:
    """Halves sentences until they are within the limits.

    Nothing is left of the `kept` parts in the text. They are not cut and do not count.
    """

    def __init__(self, text: str, encode: Encode, limits: SplitLimits, kept: Sequence[Kept], budget: Budget) -> None:
        self._text = text
        self._encode = encode
        self._limits = limits
        self._budget = budget
        self._kept = kept
        self._starts = [part.start for part in kept]
        self._lengths = list(accumulate((part.end - part.start for part in kept), initial=0))

    @cached_property
    def _narrow(self) -> str:
        """The text, of the same length, in which the signs within wide numbers end no clause."""
        return narrowed(self._text)

    def pieces(self, spans: Sequence[Span]) -> tuple[list[tuple[Span, tuple[int, ...]]], int]:
        """Return the sentences at `spans` in pieces within the limits, without the pieces that have no tokens.

        With them comes how many sentences were halved.
        """
        pieces, most = self._tokens(spans), self._limits.tokens
        halved = 0
        while True:
            # how many sentences the pieces become at least: saves the halving
            if sum(1 if ids is None else -(-len(ids) // most) for _, ids in pieces) > self._limits.sentences:
                raise TooManySentencesError
            halves: list[tuple[Span, ...]] = []
            for span, ids in pieces:
                self._budget.check()
                halves.append(self._halves(*span) if ids is None or len(ids) > most else ())
            if not any(halves):
                return _tokenized(pieces), halved
            halved = halved or sum(map(bool, halves))
            smaller = iter(self._tokens([half for pair in halves for half in pair]))
            pieces = [
                piece
                for whole, pair in zip(pieces, halves, strict=True)
                for piece in ([next(smaller) for _ in pair] if pair else [whole])
            ]

    def _tokens(self, spans: Sequence[Span]) -> list[_Piece]:
        short = [self._length(*span) <= self._limits.characters for span in spans]
        encoded = [span for span, is_short in zip(spans, short, strict=True) if is_short]
        ids = iter(self._encode(encoded) if encoded else ())
        return [(span, tuple(next(ids)) if is_short else None) for span, is_short in zip(spans, short, strict=True)]

    def _length(self, start: int, end: int) -> int:
        """Return how many characters are not of kept parts."""
        first, last = bisect_left(self._starts, start), bisect_left(self._starts, end)
        return end - start - (self._lengths[last] - self._lengths[first])

    def _halves(self, start: int, end: int) -> tuple[Span, ...]:
        """Return the two halves of a sentence, cut at the best place near its middle; none if it cannot be cut."""
        cut = start + _cut(self._narrow[start:end])
        number = bisect_left(self._starts, cut) - 1
        if number >= 0 and self._kept[number].end > cut:  # within a kept part: beside it
            first, last, _ = self._kept[number]
            cut = first if first > start else last
        parts = (stripped(self._text, start, cut), stripped(self._text, cut, end)) if cut < end else ()
        return tuple(part for part in parts if part) if all(parts) else ()


def _tokenized(pieces: Sequence[_Piece]) -> list[tuple[Span, tuple[int, ...]]]:
    """Return the pieces that have tokens."""
    found: list[tuple[Span, tuple[int, ...]]] = []
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
    for match in _NUMBER.finditer(sentence, middle - quarter, middle + quarter):  # beside a number in the middle
        for place in match.span() if match.start() < middle < match.end() else ():
            if middle - quarter < place < middle + quarter and is_boundary(sentence, place):
                return place
    if before := boundary_before(sentence, middle):
        return before
    return next(index for index in range(middle + 1, len(sentence) + 1) if is_boundary(sentence, index))


_MASK = "w"


@dataclass(frozen=True, slots=True)
class SplitText:
    """A text as n sentences."""

    # where each sentence starts and ends in the text [characters], without white space around it. What stands
    # between sentences is not translated: white space, and numbers and signs of list items
    spans: tuple[Span, ...]
    source_ids: tuple[tuple[int, ...], ...]  # of each sentence
    halved: int = 0  # how many sentences were too long


def split_text(
    text: str,
    language: str,
    encode: Encode,
    limits: SplitLimits,
    budget: Budget = UNLIMITED,
    *,
    kept: Sequence[Kept] = (),
    whole: bool = False,
) -> SplitText:
    """Cut `text`, which has no surrogates, into sentences. With `whole`, it is one sentence, unless it is too long.

    A sentence of too many tokens or characters is halved: after the clause that ends next to its middle, or else at
    white space, or else between any two characters, but rather beside a number than within it. A sentence of too many
    tokens that cannot be halved without splitting a character stays too long. The `kept` parts of the text, in order,
    are not cut, and their characters do not count.

    The language, a BCP-47 tag, selects the abbreviations. An unknown language counts as English. The budget is checked
    between the pieces of the work.

    Raises:
        TooManySentencesError: the text has more sentences.
        LongCharacterError: a sentence of too many characters is a single character to a reader.
    """
    spans: list[Span] = []
    plain = _masked(text, kept)
    found = [stripped(plain, 0, len(plain))] if whole else sentences(plain, language_of(language), kept, budget)
    for span in found:
        if span:
            spans.append(span)
        if len(spans) > limits.sentences:
            raise TooManySentencesError
    pieces, halved = Halving(plain, encode, limits, kept, budget).pieces(spans)
    return SplitText(tuple([span for span, _ in pieces]), tuple([ids for _, ids in pieces]), halved)


def _masked(text: str, kept: Sequence[Kept]) -> str:
    """Return `text` with letters in place of the kept parts, so that no sentence or clause ends within them."""
    if not kept:
        return text
    parts, done = [], 0
    for part in kept:
        parts += [text[done : part.start], _MASK * (part.end - part.start)]
        done = part.end
    return "".join([*parts, text[done:]])
