"""Aligns the tokens of a translation with the source text, for the marks that are put into the translation."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from itertools import accumulate, pairwise

from translane_server.sentence import AlignedToken
from translane_server.text.aligned_text import AlignedText
from translane_server.text.unknown_parts import token_spans

_Utf8Decoder = codecs.getincrementaldecoder("utf-8")


def aligned_text(
    text: str,
    surfaces: Sequence[bytes],
    source: str,
    source_surfaces: Sequence[str],
    alignment: Sequence[AlignedToken],
) -> AlignedText:
    """Return a translation with the part of the source text that each of its tokens comes from.

    Args:
        text: the translation.
        surfaces: what each of T tokens adds to the text, as UTF-8.
        source: the source text.
        source_surfaces: the part of the source text that each of S tokens stands for.
        alignment: the alignment of each of T tokens. If it is empty, each token comes from the part of the source that
            is at the same share of its length.
    """
    decoder = _Utf8Decoder("replace")
    pieces = [decoder.decode(surface) for surface in surfaces]
    if pieces:
        pieces[-1] += decoder.decode(b"", final=True)
    if not alignment:
        return AlignedText(text, pieces, _proportional(pieces, len(source)))
    spans = token_spans(source, source_surfaces)
    return AlignedText(text, pieces, [spans[each.source_token] for each in alignment])


def _proportional(pieces: Sequence[str], length: int) -> list[tuple[int, int] | None]:
    """Return parts of a source of `length` characters, in the proportion of the pieces' lengths."""
    ends = list(accumulate(map(len, pieces), initial=0))
    whole = max(1, ends[-1])
    return [
        (one * length // whole, max(one * length // whole + 1, other * length // whole)) if length else None
        for one, other in pairwise(ends)
    ]
