"""Stand-ins ⟨1⟩ … ⟨9⟩: symbols that some models copy, in the place of what a translation keeps.

A model that has seen stand-ins in training treats one as a word of the sentence, and writes it where the word belongs.
So what is kept needs no alignment, and neither a name nor a number is spelled by the model.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence
from html import unescape
from itertools import accumulate
from typing import NamedTuple

from translane_server.text.characters import has_latin_letters
from translane_server.text.language_tags import language_of
from translane_server.text.marked_text import TaggedText
from translane_server.text.numbers import UNIT, narrowed, same_separators
from translane_server.text.placeholders import Kept, Kind, Span

STAND_INS = tuple(f"⟨{number}⟩" for number in range(1, 10))
"""The symbols, as training reserves them."""

# What looks like a stand-in in a text of the caller: it is kept, so that it is taken for none.
_OWN = re.compile("⟨[^⟨⟩]{1,8}⟩")

# Names and codes in a text of another script, such as GPT-4, iPhone 15 or RFC 9110. A word has a capital or a digit.
_LATIN = re.compile(
    "(?<![A-Za-z0-9\u00c0-\u024f])(?=[a-z]{0,8}[A-Z])[A-Za-z][A-Za-z0-9]+"
    "(?:[ .&'_/-][A-Z0-9][A-Za-z0-9]{0,30}){0,4}(?![A-Za-z0-9\u00c0-\u024f])"
    "(?:(?<![0-9])|(?!\\s?[年년月월]))"  # Intel 8月: the number is not the name's
)
_LETTER = "[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
# A hyphen after a letter joins a name and its number, 歼-20, unless a word such as 是 or 到 is before it, or degrees or
# per cent are behind the number.
_MINUS = (
    f"(?:−|(?:(?<!{_LETTER})|(?<=[是为為到至达達于於在低]))[-–]"
    "|[-–](?=[0-9.]{1,8}\\s?(?:摄氏|攝氏)?[度℃°%]))(?=[0-9])"
)
# Numbers but 0 and 1, which many languages write as words, with their minus; ranges such as 2-5; times. None is a part
# of a longer one, which is sought in few characters, so that the time does not grow with the square of 1~1~1~…
_NUMBER = re.compile(
    f"(?<![\\w.,:/第-])(?<![0-9][~–])(?:{_MINUS})?"
    "(?:[0-9]{1,20}(?:[-–~][0-9]{1,20}){1,4}|[0-9]{1,2}(?::[0-9]{2}){1,2}(?:\\.[0-9]{1,3})?|[0-9]{2,20}|[2-9]|"
    "[0-9]{1,3}(?:,[0-9]{3}){1,6}(?:\\.[0-9]{1,20})?|[0-9]{1,20}[.:][0-9]{1,20})"
    f"(?![\\w.,:/~–-]{{0,64}}[0-9])(?!\\s*{UNIT})",
    re.ASCII,
)
_UNIT = re.compile("[A-Za-z]{1,8}(?![A-Za-z])")  # right after a number, such as that of 2.4GHz
# A day, 2021年8月24日 or 8月24日, with or without spaces; in Japanese, too, and in Korean with 년, 월 and 일.
_DAY = re.compile(
    "(?<![\\w.,:/第-])(?:([0-9]{4})\\s?[年년]\\s?)?(1[0-2]|0?[1-9])\\s?[月월]\\s?(3[01]|[12][0-9]|0?[1-9])\\s?"
    "[日号號일](?![元圆圓本])",
    re.ASCII,
)
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)

# Every name, number and day has one of these.
_CAPITAL_OR_DIGIT = re.compile("[A-Z0-9Ａ-Ｚ０-９]")

_EDGE_OF_WORD = re.compile("\\b", re.ASCII)


def own_symbols(text: str) -> Iterator[Kept]:
    """Yield what looks like a stand-in."""
    if "⟨" in text:
        for match in _OWN.finditer(text):
            yield Kept(*match.span())


class Found(NamedTuple):
    """A name, a number or a day in a text, and what the translation has in its place."""

    start: int
    end: int
    text: str


class NamesAndNumbers:
    """Finds what a model need not spell, in texts of one language that are translated into another one.

    Days, 8月24日, are found where the target is English, for which they are written out: August 24.
    """

    def __init__(self, source_language: str, target_language: str, forbidden: Sequence[str] = ()) -> None:
        """What overlaps a `forbidden` phrase is not found: the model spells it, so that the search can forbid it."""
        self._forbidden = forbidden
        self._longest = max(map(len, forbidden), default=0)
        edges = [(phrase, edge.start()) for phrase in forbidden for edge in _EDGE_OF_WORD.finditer(phrase)]
        self._starts = {phrase[:edge] for phrase, edge in edges}
        self._ends = {phrase[edge:] for phrase, edge in edges}
        self._finds_names = not has_latin_letters(source_language)
        self._finds_days = language_of(target_language) == "en"
        self._same_separators = same_separators(source_language, target_language)

    def may_be_in(self, text: str) -> bool:
        """Whether a stand-in may take the place of a part of `text` that is not kept otherwise."""
        return "⟨" in text or (_CAPITAL_OR_DIGIT.search(text) is not None and bool(self.find(text)))

    def find(self, text: str) -> list[Found]:
        """Return names, numbers and days, from left to right, in time that grows with the length of the text alone."""
        narrow = narrowed(text)
        found = []
        if self._finds_days:
            found = [Found(*match.span(), _written_day(match)) for match in _DAY.finditer(narrow)]
            narrow = _DAY.sub(lambda day: "。" * len(day[0]), narrow)  # no name or number has a part of a day
        if self._finds_names:
            found += [Found(*match.span(), match.group()) for match in _LATIN.finditer(narrow)]
        taken = {place for each in found for place in range(each.start, each.end)}
        for match in _NUMBER.finditer(narrow):
            start, end = match.span()
            if unit := _UNIT.match(narrow, end):
                if self._finds_names:
                    end = unit.end()
                elif end == start + 1:
                    continue
            if taken.isdisjoint(range(start, end)) and (self._same_separators or not re.search("[.,]", match.group())):
                found.append(Found(start, end, narrow[start:end]))
        return sorted(each for each in found if not self._is_forbidden(each.text))

    def _is_forbidden(self, word: str) -> bool:
        """Whether a forbidden phrase may overlap a name or a number.

        One of the two holds the other, or one of them ends with whole words of the phrase with which the other begins.
        """
        if any(phrase in word or word in phrase for phrase in self._forbidden):
            return True
        lengths = range(1, min(len(word), self._longest) + 1)
        return any(word[:length] in self._ends or word[-length:] in self._starts for length in lengths)


def _written_day(match: re.Match[str]) -> str:
    year, month, day = match.groups()
    written = f"{_MONTHS[int(month) - 1]} {int(day)}"
    return f"{written}, {year}" if year else written


class StandIn(NamedTuple):
    """A part of a text, and the symbol in its place."""

    start: int
    end: int
    symbol: str
    text: str  # what the translation has in its place


def numbered(
    text: str,
    kept: Iterable[Kept],
    others: Sequence[Found],
    symbols: Sequence[str],
    span: Span,
    places: Container[int] = (),
) -> list[StandIn]:
    """Return what symbols stand for in a sentence; nothing if no letter would be left beside the symbols.

    Args:
        text: the text that the sentence is of.
        kept: the kept parts of the sentence.
        others: names, numbers and days of the sentence. None of them overlaps a kept part.
        symbols: the model's stand-ins. Where they are too few, kept parts get them first.
        span: where the sentence is.
        places: where marks start and end. No stand-in is for parts on both sides of one.
    """
    chains: list[list[Kept]] = []  # parts that touch each other stay together
    for part in sorted(kept):
        if part.kind in (Kind.OTHER, Kind.EMOJI):
            if not (chains and chains[-1][-1].end == part.start) or part.start in places:
                chains.append([])
            chains[-1].append(part)
    words = [(chain[0].start, chain[-1].end) for chain in chains if any(_is_word(text, part) for part in chain)]
    found = [*(Found(start, end, text[start:end]) for start, end in words), *others]
    chosen = sorted(found[: len(symbols)])
    bounds = [span[0], *(bound for part in chosen for bound in part[:2]), span[1]]
    left = "".join(text[one:other] for one, other in zip(bounds[::2], bounds[1::2], strict=True))
    if not any(map(str.isalpha, left)):
        return []
    return [StandIn(start, end, symbol, new) for (start, end, new), symbol in zip(chosen, symbols, strict=False)]


def _is_word(text: str, part: Kept) -> bool:
    """Whether a kept part takes the place of a word."""
    written = text[part.start : part.end]
    if part.kind is not Kind.OTHER or written.startswith("<!--"):
        return False
    return not unescape(written).isspace() and any(unicodedata.category(sign)[0] != "P" for sign in written)


def with_stand_ins(
    block: TaggedText, kept: Sequence[Kept], spans: Sequence[Span], parts: Sequence[StandIn]
) -> tuple[TaggedText, list[Kept], list[Span]]:
    """Return a block with symbols in the place of `parts`, the other kept parts of it, and where its sentences are.

    The `parts` are in order, and no mark starts or ends within one.
    """
    ends = [part.end for part in parts]
    growth = list(accumulate((len(part.symbol) - (part.end - part.start) for part in parts), initial=0))

    def moved(place: int) -> int:
        return place + growth[bisect_right(ends, place)]

    written = []
    done = 0
    for part in parts:
        written += [block.text[done : part.start], part.symbol]
        done = part.end
    text = "".join([*written, block.text[done:]])
    tags = [tag._replace(place=moved(tag.place)) for tag in block.tags]
    starts = [part.start for part in parts]

    def is_left(part: Kept) -> bool:
        before = bisect_right(starts, part.start)
        return before == 0 or ends[before - 1] <= part.start

    others = [Kept(moved(part.start), moved(part.end), part.kind) for part in kept if is_left(part)]
    return TaggedText(text, tags), others, [(moved(start), moved(end)) for start, end in spans]
