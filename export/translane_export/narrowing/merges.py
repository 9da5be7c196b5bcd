"""The pieces that a byte-pair encoding goes through on its way to a piece.

BPE merges neighbours, the best pair first, and never takes a merge back. So a piece of a text was merged from its
characters as it would be alone, and a vocabulary that has the piece and all of its parts makes the same piece of the
same text. Any other piece may go: the merges that made the pieces of a text are still the best where they were.

Sennrich et al. 2016, https://aclanthology.org/P16-1162
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

Rank = Callable[[str, str], float | None]
"""How early two neighbours are merged: the lowest first; None where they are not merged."""


def with_parts(pieces: Iterable[str], rank: Rank) -> set[str]:
    """Return `pieces` and what BPE merges them from."""
    found: set[str] = set()
    for piece in pieces:
        found.add(piece)
        found.update(_parts(piece, rank))
    return found


def _parts(piece: str, rank: Rank) -> Iterable[str]:
    symbols = list(piece)
    yield from symbols
    while len(symbols) > 1:
        ranks = [rank(one, other) for one, other in itertools.pairwise(symbols)]
        possible = [(place_rank, place) for place, place_rank in enumerate(ranks) if place_rank is not None]
        if not possible:
            return
        _, place = min(possible)
        symbols[place : place + 2] = ["".join(symbols[place : place + 2])]
        yield symbols[place]
