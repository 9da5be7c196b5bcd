"""Finds the sentences of a text.

The library sentencex finds the ends of sentences. A line break always ends a sentence.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import sentencex

from translane_server.core.budget import Budget
from translane_server.text.graphemes import is_boundary
from translane_server.text.kept import Kept, Kind

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

# Ordinals of German, after which sentencex cuts.
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

_Span = tuple[int, int]


def maybe_several(text: str) -> bool:
    """Whether `sentences` may find several sentences or a bullet in `text`. This is cheap."""
    if (end := _MAYBE_END.search(text)) and _goes_on(text, end.start()):
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


def sentences(text: str, language: str, kept: Sequence[Kept], budget: Budget) -> Iterator[_Span]:
    """Yield the span of each sentence of `text`."""
    goes_on = {part.start: part.end for part in kept if part.ends_sentence}
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
    """Yield the end of each sentence of `line`, as if its tags and emoji were not there.

    Args:
        line: a line.
        first: where it starts in the text.
        unseen: the tags and emoji, in order; their places are those of the text.
        language: selects the abbreviations.
        budget: is checked between the pieces of the work.
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
    false = {match.end() for match in _FALSE_END.finditer(plain)} if language == "de" else set()
    if not missed and not false:
        return lengths
    return [end - start for start, end in pairwise(sorted({0, len(line), *accumulate(lengths), *missed} - false))]


def stripped(text: str, start: int, end: int) -> _Span | None:
    """Return the span without white space around it, or None if nothing is left."""
    part = text[start:end]
    start += len(part) - len(part.lstrip())
    return (start, start + len(part.strip())) if part.strip() else None
