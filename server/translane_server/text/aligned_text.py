"""Translations as tokens, and as atoms: the parts that no mark cuts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import regex

from translane_server.text.spacing import UNSPACED, UNSPACED_LETTER

_LETTER = rf"(?:(?![{UNSPACED}])[\p{{L}}\p{{N}}_]\p{{M}}*)"
# White space, a word of a script that writes spaces, or any other character.
_ATOM = regex.compile(rf"\s+|{_LETTER}+(?:['’\-]{_LETTER}+)*|\X")
_WORD = regex.compile(r"[\p{L}\p{N}]")
SPACED_LETTER = regex.compile(_LETTER)

# How much the alignment of punctuation counts, beside that of a word.
_PUNCTUATION = 0.25


@dataclass(frozen=True, slots=True)
class AlignedText:
    """A translation as tokens, with the part of the source text that each token comes from.

    Attributes:
        text: the translation.
        pieces: T texts, one for each token. They concatenate to the translation, but for white space at its ends.
        sources: T spans of the source text [characters]; None for a token that comes from no part of it.
    """

    text: str
    pieces: Sequence[str]
    sources: Sequence[tuple[int, int] | None]


@dataclass(frozen=True, slots=True)
class Atom:
    """A part of the translation that no mark cuts: a word, white space or a sign.

    Attributes:
        end: where it ends [characters].
        sources: the numbers of the source places that it comes from.
        weight: how much its alignment counts.
    """

    end: int
    sources: tuple[int, ...]
    weight: float


def atoms_of(target: AlignedText, numbers: Mapping[int, int]) -> list[Atom]:
    """Cut a translation into atoms. `numbers` has the number of each source place, by its doubled middle."""
    text = target.text
    together = "".join(target.pieces)
    start = len(together.lstrip()) - len(together)
    spans: list[tuple[int, int, int]] = []  # of tokens: start, end, number of the source place
    inner: set[int] = set()  # places within a token
    for piece, source in zip(target.pieces, target.sources, strict=True):
        end = start + len(piece)
        if source:
            spans.append((start, end, numbers[sum(source)]))
        inner.update(range(start + 1, end))
        start = end
    found: list[Atom] = []
    token = 0
    begin = 0
    for match in _ATOM.finditer(text):
        end = match.end()
        if end < len(text) and end in inner and _is_unspaced(text, end):
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
