"""Cuts a text of any length into sentences that a model can take.

A text consists of sentences and of the gaps between them, so that nothing is lost. A sentence that is too long is
halved until its parts fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from translane_server.core.budget import UNLIMITED, Budget
from translane_server.text.halving import Encode, Halving, SplitLimits, TooManySentencesError
from translane_server.text.kept import Kept
from translane_server.text.language_tags import language_of
from translane_server.text.sentence_ends import sentences, stripped

_MASK = "w"

_Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SplitText:
    """A text as n sentences, and the gaps before, between and after them.

    Attributes:
        sentences: the sentences, without white space around them.
        source_ids: the tokens of each sentence.
        gaps: n + 1 texts that are not translated: white space, and numbers and signs of list items. The whole text is
            ``gaps[0] + sentences[0] + gaps[1] + … + gaps[n]``.
        spans: where each sentence starts and ends in the text [characters].
        halved: how many sentences were too long.
    """

    sentences: tuple[str, ...]
    source_ids: tuple[tuple[int, ...], ...]
    gaps: tuple[str, ...]
    spans: tuple[_Span, ...] = ()
    halved: int = 0


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
    """Cut `text` into sentences.

    A sentence of too many tokens or characters is halved: after the clause that ends next to its middle, or else at
    white space, or else between any two characters. A sentence of too many tokens that cannot be halved without
    splitting a character stays too long.

    Args:
        text: any text without surrogates. Texts of the protocol have none.
        language: a BCP-47 tag, which selects the abbreviations. An unknown language counts as English.
        encode: returns the tokens of parts of the text.
        limits: the limits of the sentences.
        budget: is checked between the pieces of the work.
        kept: parts of the text, in order, that are not cut and whose characters do not count.
        whole: the text is one sentence, unless it is too long.

    Raises:
        TooManySentencesError: the text has more sentences.
        LongCharacterError: a sentence of too many characters is a single character to a reader.
    """
    spans: list[_Span] = []
    plain = _masked(text, kept)
    found = [stripped(plain, 0, len(plain))] if whole else sentences(plain, language_of(language), kept, budget)
    for span in found:
        if span:
            spans.append(span)
        if len(spans) > limits.sentences:
            raise TooManySentencesError
    pieces, halved = Halving(plain, encode, limits, kept, budget).pieces(spans)
    starts = [start for (start, _), _ in pieces]
    ends = [end for (_, end), _ in pieces]
    return SplitText(
        sentences=tuple(text[start:end] for (start, end), _ in pieces),
        source_ids=tuple(ids for _, ids in pieces),
        gaps=tuple(text[end:start] for end, start in zip([0, *ends], [*starts, len(text)], strict=True)),
        spans=tuple(span for span, _ in pieces),
        halved=halved,
    )


def _masked(text: str, kept: Sequence[Kept]) -> str:
    """Return `text` with letters in place of the kept parts, so that no sentence or clause ends within them."""
    if not kept:
        return text
    parts, done = [], 0
    for part in kept:
        parts += [text[done : part.start], _MASK * (part.end - part.start)]
        done = part.end
    return "".join([*parts, text[done:]])
