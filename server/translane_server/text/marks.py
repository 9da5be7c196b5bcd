"""Takes out of a text what is not translated, and puts it back at the aligned places of the translation.

A mark is a pair of tags around a part of a text, or a single thing at one place: a placeholder, a URL, an image. The
model gets the text without marks. Each mark is in the translation exactly once, within the marks that it was within,
byte for byte as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mark:
    """What was taken out of a text.

    Attributes:
        start: where the part that the mark encloses starts, in the text without marks [characters].
        end: where the part ends; `start` for a single thing.
        opening: what is written before the part; all of a single thing.
        closing: what is written after the part; "" for a single thing.
        parent: the number of the mark that encloses this one; -1 for none. A parent comes before its children.
        is_single: whether the mark is a single thing, which encloses nothing.
        space_before: whether white space was before a single thing, which was at least once taken out with the thing.
        space_after: the same for white space after it.
    """

    start: int
    end: int
    opening: str
    closing: str = ""
    parent: int = -1
    is_single: bool = True
    space_before: bool = False
    space_after: bool = False


@dataclass(frozen=True, slots=True)
class MarkedText:
    """A text without its marks, and the marks, in the order in which they start.

    Attributes:
        text: what is translated.
        marks: n marks. Of marks that start at the same place, the outer one comes first.
    """

    text: str
    marks: tuple[Mark, ...] = ()

    def __post_init__(self) -> None:
        for number, mark in enumerate(self.marks):
            assert 0 <= mark.start <= mark.end <= len(self.text)
            assert mark.parent < number


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


def place(marked: MarkedText, target: AlignedText, *, spaced: bool) -> str:
    """Return the translation of `marked.text` with the marks of `marked`.

    Args:
        marked: a sentence without its marks.
        target: the translation of `marked.text`.
        spaced: whether the target language writes spaces between words.
    """
    raise NotImplementedError
