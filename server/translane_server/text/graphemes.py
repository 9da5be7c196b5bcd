"""Finds where a text may be cut: between the characters that readers see, never within one.

Such characters are the extended grapheme clusters of Unicode's annex 29, https://www.unicode.org/reports/tr29/.
"""

from __future__ import annotations

import regex

_CHARACTER = regex.compile(r"\X")


def is_boundary(text: str, index: int) -> bool:
    """Whether a character ends before `text[index]`, with 0 ≤ index ≤ len(text)."""
    if not 0 < index < len(text):
        return True
    # The pattern sees the text before its start. The match is the code point before `index`, or both around `index`,
    # so the time does not depend on the length of the character.
    match = _CHARACTER.match(text, index - 1, index + 1)
    return match is not None and match.end() == index


def boundary_before(text: str, index: int) -> int:
    """Return the last boundary at or before `index`."""
    while not is_boundary(text, index):
        index -= 1
    return index
