"""What to write in the place of tokens the model has no word for."""

from __future__ import annotations

from collections.abc import Sequence

from translane_server.sentence import AlignedToken


def replacements(
    token_ids: Sequence[int], alignment: Sequence[AlignedToken], unknown: int, source_surfaces: Sequence[str]
) -> dict[int, str]:
    """For the position of each unknown token the source it is aligned to, without white space around it.

    An unknown token that is aligned to nothing visible is left as it is.

    Args:
        token_ids: T target tokens.
        alignment: of each of them.
        unknown: the id of the unknown token.
        source_surfaces: for each of S source tokens the part of the text it stands for.
    """
    found = {
        position: source_surfaces[aligned.source_token].strip()
        for position, (token, aligned) in enumerate(zip(token_ids, alignment, strict=True))
        if token == unknown
    }
    return {position: surface for position, surface in found.items() if surface}
