"""Marks: what is taken out of a text before it is translated, and is in the translation as it was.

A mark is a pair of tags around a part of a text, or a single thing at one place: a placeholder, a URL, an image. The
model gets the text without marks. `placing` puts them into the translation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mark:
    """What was taken out of a text.

    A pair of tags that goes on before or after the text, as one around two sentences does, has no `opening` or no
    `closing` there, and starts or ends with the text.

    Attributes:
        start: where the part that the mark encloses starts, in the text without marks [characters].
        end: where the part ends; `start` for a single thing.
        opening: what is written before the part; all of a single thing.
        closing: what is written after the part; "" for a single thing.
        parent: the number of the mark that encloses this one; -1 for none. A parent comes before its children.
        is_single: whether the mark is a single thing, which encloses nothing.
        space_before: whether white space was between the text before a single thing and the thing.
        space_after: whether white space was between a single thing and the text after the thing.
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
    marks: Sequence[Mark] = ()
