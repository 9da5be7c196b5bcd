"""The Unicode normal form NFC, in a time that grows with the length of a text and not with its square.

Normalizing sorts each run of combining characters. This takes the square of the run's length, and holds the interpreter
meanwhile. So a text is normalized in pieces, and a piece may end within a run that is longer than any writing has:
Unicode's Stream-Safe Text Format allows 30 (https://www.unicode.org/reports/tr15/#Stream_Safe_Text_Format).
"""

from __future__ import annotations

import unicodedata

# Length of a piece, and the longest run that is kept together [characters].
_PIECE = 256
_RUN = 128


def composed(text: str) -> str:
    """Return `text` in NFC. A run of more than 128 combining characters may be normalized in several parts."""
    if len(text) <= _PIECE:
        return unicodedata.normalize("NFC", text)
    pieces, start = [], 0
    while start + _PIECE < len(text):
        end = _end(text, start + _PIECE)
        pieces.append(unicodedata.normalize("NFC", text[start:end]))
        start = end
    pieces.append(unicodedata.normalize("NFC", text[start:]))
    return "".join(pieces)


def _end(text: str, most: int) -> int:
    """Return the last place up to `most` where a piece can end; `most` itself if a long run lies before it."""
    for place in range(most, most - _RUN, -1):
        if not _may_change_with_the_one_before(text[place]):
            return place
    return most


def _may_change_with_the_one_before(character: str) -> bool:
    """Whether NFC may sort or compose `character` with what is before it: a mark, or the rest of a Hangul syllable."""
    return unicodedata.category(character).startswith("M") or "\u1160" <= character <= "\u11ff"
