"""Replaces unknown tokens with the source text that they come from."""

from __future__ import annotations

from collections.abc import Sequence

from translane_server.sentence import AlignedToken

# A longer part of the source replaces no token [characters]. Each of many tokens may be aligned with the same part.
_LONGEST = 1024


def replacements(
    token_ids: Sequence[int], alignment: Sequence[AlignedToken], unknown: int, source_surfaces: Sequence[str]
) -> dict[int, str]:
    """Return the source text that each unknown token is aligned to, by the token's position.

    The source text has no white space around it. A token that is aligned to nothing visible has no replacement. A token
    that is aligned to more than 1024 characters has none either.

    Args:
        token_ids: T target tokens.
        alignment: the alignment of each target token.
        unknown: the id of the unknown token.
        source_surfaces: the part of the text that each of S source tokens stands for.
    """
    found = {
        position: source_surfaces[aligned.source_token].strip()
        for position, (token, aligned) in enumerate(zip(token_ids, alignment, strict=True))
        if token == unknown
    }
    return {position: surface for position, surface in found.items() if 0 < len(surface) <= _LONGEST}
