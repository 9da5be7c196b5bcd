"""Finds where a text may be cut: between the characters that readers see, never within one.

Such characters are the extended grapheme clusters of Unicode's annex 29, https://www.unicode.org/reports/tr29/. Every
boundary here is a boundary there. A few rare boundaries are missed, because the standard library lacks their tables.
"""

from __future__ import annotations

import unicodedata

_ZERO_WIDTH_JOINER = "\u200d"
_VIRAMA = 9  # canonical combining class of the signs that join consonants
# These join the character before them, although their category does not say so: zero-width non-joiner, Thai and Lao AM,
# half-width voiced marks.
_EXTENDING = frozenset("\u200c\u0e33\u0eb3\uff9e\uff9f")
# These join the character after them: number signs and similar signs (Grapheme_Cluster_Break = Prepend).
_PREPENDED = frozenset(
    map(
        chr,
        [
            *range(0x0600, 0x0606), 0x06DD, 0x070F, 0x0890, 0x0891, 0x08E2, 0x0D4E, 0x110BD, 0x110CD, 0x111C2, 0x111C3,
            0x113D1, 0x1193F, 0x11941, 0x11A3A, *range(0x11A84, 0x11A8A), 0x11D46, 0x11F02,
        ],
    )
)  # fmt: skip


def is_boundary(text: str, index: int) -> bool:
    """Whether a character ends before `text[index]`, with 0 ≤ index ≤ len(text)."""
    if not 0 < index < len(text):
        return True
    before, after = text[index - 1], text[index]
    if after < "\u0300":
        return before not in _PREPENDED and not (before == "\r" and after == "\n")
    if before == _ZERO_WIDTH_JOINER or before in _PREPENDED or _extends(after):
        return False
    if _is_regional_indicator(after):
        return _regional_indicators_before(text, index) % 2 == 0
    if _is_leading_jamo(before):
        return not _is_hangul(after)
    return not (unicodedata.category(after).startswith("L") and _ends_in_virama(text, index))


def boundary_before(text: str, index: int) -> int:
    """Return the last boundary at or before `index`."""
    while not is_boundary(text, index):
        index -= 1
    return index


def _extends(character: str) -> bool:
    """Whether `character` belongs to the character before it, whichever that is."""
    point = ord(character)
    return (
        unicodedata.category(character).startswith(("M", "Cn"))  # an unassigned character may be a mark
        or character == _ZERO_WIDTH_JOINER
        or character in _EXTENDING
        or 0x1F3FB <= point <= 0x1F3FF  # skin tones
        or 0xE0020 <= point <= 0xE007F  # tags, as in flags of regions
        or 0x1160 <= point <= 0x11FF  # vowels and final consonants of Hangul
        or 0xD7B0 <= point <= 0xD7FF
    )


def _is_regional_indicator(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _regional_indicators_before(text: str, index: int) -> int:
    """Count the regional indicators in a row before `index`. Two of them make a flag."""
    first = index
    while first and _is_regional_indicator(text[first - 1]):
        first -= 1
    return index - first


def _ends_in_virama(text: str, index: int) -> bool:
    """Whether one of the marks before `index` joins consonants."""
    while index and _extends(text[index - 1]):
        index -= 1
        if unicodedata.combining(text[index]) == _VIRAMA or unicodedata.category(text[index]) == "Cn":
            return True
    return False


def _is_leading_jamo(character: str) -> bool:
    return "\u1100" <= character <= "\u115f" or "\ua960" <= character <= "\ua97c"


def _is_hangul(character: str) -> bool:
    return _is_leading_jamo(character) or "\uac00" <= character <= "\ud7a3"
