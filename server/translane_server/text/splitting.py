"""Cuts a text of any length into sentences that a model can take, and joins their translations to one text.

A text consists of sentences and of the gaps between them, so that nothing is lost. The library sentencex finds the ends
of sentences. A line break always ends a sentence. A sentence that is too long is halved until its parts fit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import sentencex

from translane_server.budget import UNLIMITED, Budget
from translane_server.text.graphemes import boundary_before, is_boundary

# How much of a line sentencex gets at once [characters]. The time of sentencex grows with the square of this length.
_WINDOW = 4096

_LINE = re.compile(r"[^\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")
_WHITE_SPACE = re.compile(r"\s+")
_WHITE_SPACE_CHARACTER = re.compile(r"\s")
# Ends of clauses: punctuation, and closing quotes and brackets after it. In scripts that write a space after
# punctuation, the space must follow, because the comma in 1,000 ends no clause.
_CLAUSE_END = re.compile(r"(?:[，、；：。！？…，،؛؟۔।॥။፣፤]|[,;:.!?–—](?=[)\]\"'”’»]*\s))[)\]\"'”’»）」』】》〉]*")

# The number of a list item. sentencex takes the number for a sentence, but it is not translated.
_ITEM_NUMBER = re.compile(r"\(?[0-9]{1,3}[.)]")

# Languages without a space between sentences, if they are written in their own script. Languages of South East Asia
# write no space between words, but they write one between sentences.
_UNSPACED_LANGUAGES = frozenset({"zh", "cmn", "yue", "wuu", "gan", "hsn", "lzh", "ja"})
_UNSPACED_SCRIPTS = frozenset({"hans", "hant", "hani", "hanb", "bopo", "jpan", "hira", "kana", "hrkt"})

_PLAIN_GAPS = frozenset({"", " ", "\u3000"})

Encode = Callable[[Sequence[str]], Sequence[Sequence[int]]]
_Span = tuple[int, int]

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


@dataclass(frozen=True, slots=True)
class SplitText:
    """A text as n sentences, and the gaps before, between and after them.

    Attributes:
        sentences: the sentences, without white space around them.
        source_ids: the tokens of each sentence.
        gaps: n + 1 texts that are not translated: white space, and numbers of list items. The whole text is
            ``gaps[0] + sentences[0] + gaps[1] + … + gaps[n]``.
    """

    sentences: tuple[str, ...]
    source_ids: tuple[tuple[int, ...], ...]
    gaps: tuple[str, ...]

    def target_gaps(self, target_language: str) -> list[str]:
        """Return the gaps of a translation to `target_language`, a BCP-47 tag.

        A gap between sentences that is empty or a single space follows the habit of the target language. All other gaps
        stay as they are.
        """
        if not self.sentences:
            return list(self.gaps)
        space = "" if _is_unspaced(target_language) else " "
        first, *between, last = self.gaps
        return [first, *(space if gap in _PLAIN_GAPS else gap for gap in between), last]

    def join(self, translations: Sequence[str], target_language: str) -> str:
        """Join the sentences' translations to the translation of the text."""
        first, *others = self.target_gaps(target_language)
        return first + "".join(text + gap for text, gap in zip(translations, others, strict=True))


def split_text(text: str, language: str, encode: Encode, limits: SplitLimits, budget: Budget = UNLIMITED) -> SplitText:
    """Cut `text` into sentences.

    A sentence of too many tokens or characters is halved: after the clause that ends next to its middle, or else at
    white space, or else between any two characters. A sentence of too many tokens that cannot be halved without
    splitting a character stays too long.

    Args:
        text: any text without surrogates. Texts of the protocol have none.
        language: a BCP-47 tag, which selects the abbreviations. An unknown language counts as English.
        encode: returns the tokens of texts; no tokens for a text that needs no translation.
        limits: the limits of the sentences.
        budget: is checked between the pieces of the work.

    Raises:
        TooManySentencesError: the text has more sentences.
        LongCharacterError: a sentence of too many characters is a single character to a reader.
    """
    spans: list[_Span] = []
    for span in _sentences(text, _primary_subtag(language), budget):
        spans.append(span)
        if len(spans) > limits.sentences:
            raise TooManySentencesError
    pieces = _fitting(text, spans, encode, limits, budget)
    starts = [start for (start, _), _ in pieces]
    ends = [end for (_, end), _ in pieces]
    return SplitText(
        sentences=tuple(text[start:end] for (start, end), _ in pieces),
        source_ids=tuple(ids for _, ids in pieces),
        gaps=tuple(text[end:start] for end, start in zip([0, *ends], [*starts, len(text)], strict=True)),
    )


def _sentences(text: str, language: str, budget: Budget) -> Iterator[_Span]:
    """Yield the span of each sentence of `text`."""
    for match in _LINE.finditer(text):
        if (line := match.group()).isspace():
            continue
        start = match.start()
        for end in _sentence_ends(line, language, budget):
            if is_boundary(line, end):
                span = _stripped(text, start, match.start() + end)
                if span and not _ITEM_NUMBER.fullmatch(text, *span):
                    yield span
                start = match.start() + end


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
    return lengths if sum(lengths) == len(line) else [len(line)]


def _fitting(
    text: str, spans: Sequence[_Span], encode: Encode, limits: SplitLimits, budget: Budget
) -> list[tuple[_Span, tuple[int, ...]]]:
    """Return the sentences at `spans` in pieces within `limits`, without the pieces that have no tokens."""
    pieces = _tokens(text, spans, encode, limits)
    while True:
        if sum(_least_sentences(piece, limits) for piece in pieces) > limits.sentences:  # saves the work of halving
            raise TooManySentencesError
        halves: list[tuple[_Span, ...]] = []
        for piece in pieces:
            budget.check()
            halves.append(_halves(text, *piece[0]) if _is_too_long(piece, limits) else ())
        if not any(halves):
            return _tokenized(pieces)
        smaller = iter(_tokens(text, [half for pair in halves for half in pair], encode, limits))
        pieces = [
            piece
            for whole, pair in zip(pieces, halves, strict=True)
            for piece in ([next(smaller) for _ in pair] if pair else [whole])
        ]


def _tokens(text: str, spans: Sequence[_Span], encode: Encode, limits: SplitLimits) -> list[_Piece]:
    short = [text[start:end] for start, end in spans if end - start <= limits.characters]
    ids = iter(encode(short) if short else ())
    return [(span, tuple(next(ids)) if span[1] - span[0] <= limits.characters else None) for span in spans]


def _is_too_long(piece: _Piece, limits: SplitLimits) -> bool:
    _, ids = piece
    return ids is None or len(ids) > limits.tokens


def _least_sentences(piece: _Piece, limits: SplitLimits) -> int:
    """Return how many sentences a piece becomes at least."""
    _, ids = piece
    return 1 if ids is None else -(-len(ids) // limits.tokens)


def _tokenized(pieces: Sequence[_Piece]) -> list[tuple[_Span, tuple[int, ...]]]:
    """Return the pieces that have tokens."""
    found: list[tuple[_Span, tuple[int, ...]]] = []
    for (start, end), ids in pieces:
        if ids is None:
            raise LongCharacterError(end - start)
        if ids:
            found.append(((start, end), ids))
    return found


def _halves(text: str, start: int, end: int) -> tuple[_Span, ...]:
    """Return the two halves of a sentence, cut at the best place near its middle; none if it cannot be cut."""
    cut = _cut(text[start:end])
    parts = (_stripped(text, start, start + cut), _stripped(text, start + cut, end))
    return tuple(part for part in parts if part) if all(parts) else ()


def _cut(sentence: str) -> int:
    middle, quarter = len(sentence) // 2, len(sentence) // 4
    for pattern in (_CLAUSE_END, _WHITE_SPACE):
        ends = [match.end() for match in pattern.finditer(sentence, middle - quarter, middle + quarter)]
        if near := [end for end in ends if is_boundary(sentence, end)]:
            return min(near, key=lambda end: abs(end - middle))
    if before := boundary_before(sentence, middle):
        return before
    return next(index for index in range(middle + 1, len(sentence) + 1) if is_boundary(sentence, index))


def _stripped(text: str, start: int, end: int) -> _Span | None:
    """Return the span without white space around it, or None if nothing is left."""
    part = text[start:end]
    start += len(part) - len(part.lstrip())
    return (start, start + len(part.strip())) if part.strip() else None


def _primary_subtag(language: str) -> str:
    return _subtags(language)[0]


def _is_unspaced(language: str) -> bool:
    primary, *others = _subtags(language)
    script = next((subtag for subtag in others if len(subtag) == 4 and subtag.isalpha()), None)
    return primary in _UNSPACED_LANGUAGES if script is None else script in _UNSPACED_SCRIPTS


def _subtags(language: str) -> list[str]:
    return language.lower().replace("_", "-").split("-")
