"""Finds the certain tokens of a streamed translation: the tokens with which all its hypotheses begin."""

from __future__ import annotations

from translane_server.engine.hypotheses import alignment_of, unrolled
from translane_server.engine.rows import RowTable
from translane_server.engine.search import LiveBeams, Path, Search
from translane_server.engine.sentence import CertainTokens


def new_certain_tokens(search: Search, table: RowTable) -> CertainTokens | None:
    """The tokens of a live search that have become certain since the last call; None if there are none."""
    row, start = search.rows[0], search.reported
    if search.beams is None:
        end = table.positions.item(row)
        tokens = table.tokens(row, start, end)
    else:
        end, path = _shared(search.beams)
        if end <= start:
            return None
        whole, _ = unrolled(path)
        end = _agreed(search.beams, whole)
        tokens = whole[start:end]
    if not tokens:
        return None
    search.reported = end
    return CertainTokens(tuple(tokens), alignment_of(table, row, start, end) if search.options.alignment else ())


def _shared(beams: LiveBeams) -> tuple[int, Path]:
    """The common beginning of the live beams, and its length. Beams have equal lengths, and share equal beginnings."""
    length, paths = beams.length, {id(path): path for path in beams.paths}
    while len(paths) > 1:
        length -= 1
        paths = {id(path[2]): path[2] for path in paths.values() if path is not None}
    (path,) = paths.values()
    return length, path


def _agreed(beams: LiveBeams, tokens: list[int]) -> int:
    """The number of `tokens` with which the best ended hypothesis begins; all if no hypothesis has ended."""
    if not beams.pool.hypotheses:
        return len(tokens)
    ended = beams.pool.hypotheses[0].token_ids
    return next(
        (place for place, pair in enumerate(zip(tokens, ended, strict=False)) if pair[0] != pair[1]),
        min(len(tokens), len(ended)),
    )
