"""A text of any length as sentences that a model takes, and their translations as one text again.

The text is spans of sentences and the gaps between them, so that nothing of it is lost. Where sentences end is
sentencex's knowledge; a line break always ends one, and a sentence of too many tokens is halved until it fits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import sentencex

from translane_server.text.graphemes import boundary_before, is_boundary

# How much of a line sentencex gets at once: the time it takes grows with the square of that [characters].
_WINDOW = 4096

_LINE = re.compile(r"[^\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")
_WHITE_SPACE = re.compile(r"\s+")
_WHITE_SPACE_CHARACTER = re.compile(r"\s")
# Ends of clauses: the punctuation of scripts that put no space after it; that of others only before white space, as in
# 1,000 it ends nothing; and what may close after either.
_CLAUSE_END = re.compile(r"(?:[，、；：。！？…，،؛؟۔।॥။፣፤]|[,;:.!?–—](?=[)\]\"'”’»]*\s))[)\]\"'”’»）」』】》〉]*")

# The number of a list's item, which sentencex takes for a sentence: it is not translated.
_ITEM_NUMBER = re.compile(r"\(?[0-9]{1,3}[.)]")

# Languages whose sentences follow one another without a space, unless their script is another than their own. Those
# of South East Asia that write no space between words do write one between sentences.
_UNSPACED_LANGUAGES = frozenset({"zh", "cmn", "yue", "wuu", "gan", "hsn", "lzh", "ja"})
_UNSPACED_SCRIPTS = frozenset({"hans", "hant", "hani", "hanb", "bopo", "jpan", "hira", "kana", "hrkt"})

_PLAIN_GAPS = frozenset({"", " ", "\u3000"})

Encode = Callable[[Sequence[str]], Sequence[Sequence[int]]]
_Span = tuple[int, int]
_Piece = tuple[_Span, tuple[int, ...]]


class TooManySentencesError(ValueError):
    """The text has more sentences than are accepted."""


@dataclass(frozen=True, slots=True)
class SplitText:
    """A text as n sentences, and what is before, between and after them.

    Attributes:
        sentences: without white space around them.
        source_ids: their tokens.
        gaps: n + 1 of them, with all that is not translated: white space, numbers of items. A text is
            ``gaps[0] + sentences[0] + gaps[1] + … + gaps[n]``.
    """

    sentences: tuple[str, ...]
    source_ids: tuple[tuple[int, ...], ...]
    gaps: tuple[str, ...]

    def target_gaps(self, target_language: str) -> list[str]:
        """The gaps as they are in a translation to `target_language`, a BCP-47 tag.

        Where sentences stand side by side or with one space between them, they do as the target language has it. All
        other gaps stay as they are.
        """
        if not self.sentences:
            return list(self.gaps)
        space = "" if _is_unspaced(target_language) else " "
        first, *between, last = self.gaps
        return [first, *(space if gap in _PLAIN_GAPS else gap for gap in between), last]

    def join(self, translations: Sequence[str], target_language: str) -> str:
        """The translation of the text, of the sentences' translations."""
        first, *others = self.target_gaps(target_language)
        return first + "".join(text + gap for text, gap in zip(translations, others, strict=True))


def split_text(text: str, language: str, encode: Encode, *, max_tokens: int, max_sentences: int) -> SplitText:
    """Cut `text` into sentences.

    A sentence of more than `max_tokens` is halved: after the clause next to its middle, or else at white space, or
    else between any two characters. What cannot be halved without splitting a character stays too long.

    Args:
        text: any; without surrogates, as all text of the protocol is.
        language: a BCP-47 tag. Abbreviations are those of this language; one that is not known is taken for English.
        encode: gives the tokens of texts, none for a text that needs no translation.
        max_tokens: most tokens of a sentence.
        max_sentences: most sentences of the text.

    Raises:
        TooManySentencesError: there are more.
    """
    spans: list[_Span] = []
    for span in _sentences(text, _primary_subtag(language)):
        spans.append(span)
        if len(spans) > max_sentences:
            raise TooManySentencesError
    pieces = _fitting(text, spans, encode, max_tokens, max_sentences)
    starts = [start for (start, _), _ in pieces]
    ends = [end for (_, end), _ in pieces]
    return SplitText(
        sentences=tuple(text[start:end] for (start, end), _ in pieces),
        source_ids=tuple(ids for _, ids in pieces),
        gaps=tuple(text[end:start] for end, start in zip([0, *ends], [*starts, len(text)], strict=True)),
    )


def _sentences(text: str, language: str) -> Iterator[_Span]:
    """Where the sentences of `text` are."""
    for match in _LINE.finditer(text):
        if (line := match.group()).isspace():
            continue
        start = match.start()
        for end in _sentence_ends(line, language):
            if is_boundary(line, end):
                span = _stripped(text, start, match.start() + end)
                if span and not _ITEM_NUMBER.fullmatch(text, *span):
                    yield span
                start = match.start() + end


def _sentence_ends(line: str, language: str) -> Iterator[int]:
    """Where the sentences of `line` end, in order; the last one at its end.

    A window's last sentence may go on after it, so the next window starts with it; or after it, if that would be a
    step back of more than half a window.
    """
    start = 0
    while start + _WINDOW < len(line):
        position = start
        for length in _segment(line[start : start + _WINDOW], language)[:-1]:
            position += length
            yield position
        start = position if position - start >= _WINDOW // 2 else start + _WINDOW
    for length in _segment(line[start:], language):
        start += length
        yield start


def _segment(line: str, language: str) -> list[int]:
    """How long each sentence of `line` is, white space after it included."""
    # sentencex panics at some white space that is not ASCII, and a panic is no Exception
    plain = _WHITE_SPACE_CHARACTER.sub(" ", line)
    try:
        lengths = list(map(len, sentencex.segment(language, plain)))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return [len(line)]
    return lengths if sum(lengths) == len(line) else [len(line)]


def _fitting(text: str, spans: Sequence[_Span], encode: Encode, max_tokens: int, max_sentences: int) -> list[_Piece]:
    """The sentences at `spans` in pieces of no more than `max_tokens`; those without tokens are left out."""
    pieces = _tokens(text, spans, encode)
    while True:
        if sum(-(-len(ids) // max_tokens) for _, ids in pieces) > max_sentences:  # not worth the work of halving them
            raise TooManySentencesError
        halves = [_halves(text, *span) if len(ids) > max_tokens else () for span, ids in pieces]
        if not any(halves):
            return [(span, ids) for span, ids in pieces if ids]
        smaller = iter(_tokens(text, [half for pair in halves for half in pair], encode))
        pieces = [
            piece
            for whole, pair in zip(pieces, halves, strict=True)
            for piece in ([next(smaller) for _ in pair] if pair else [whole])
        ]


def _tokens(text: str, spans: Sequence[_Span], encode: Encode) -> list[_Piece]:
    ids = encode([text[start:end] for start, end in spans]) if spans else []
    return [(span, tuple(each)) for span, each in zip(spans, ids, strict=True)]


def _halves(text: str, start: int, end: int) -> tuple[_Span, ...]:
    """The parts of a sentence, cut where it is least bad near its middle; none where it cannot be cut."""
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
    """The span without white space around it, or None where nothing is left."""
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
