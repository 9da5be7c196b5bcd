"""Makes hypotheses from rows and beams, with their alignment, and the committed tokens of a streamed translation.

The committed tokens are the tokens with which all hypotheses of a sentence begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from translane_server.core.arrays import FloatArray
from translane_server.engine.options import DecodingOptions
from translane_server.engine.rows import RowTable
from translane_server.engine.search import LiveBeams, Path, Search
from translane_server.engine.sequence import AlignedToken, CommittedTokens, Hypothesis

# Least coverage of a source token, so that its logarithm is finite.
LEAST_COVERAGE = 1e-9


def aligned_tokens(attention: FloatArray, source_length: int) -> tuple[AlignedToken, ...]:
    """The source token to which each target token attends most; the first one between equal weights.

    The source's end-of-sentence token is ignored unless it is the only token: target tokens without a counterpart
    attend to it.

    Args:
        attention: attention weights of T target tokens, [T, S] with S ≥ `source_length`.
        source_length: number of source tokens, with the end-of-sentence token (≥ 1).

    Returns:
        T aligned tokens.
    """
    weights = attention[:, : max(source_length - 1, 1)]
    sources = weights.argmax(axis=1)
    best = np.take_along_axis(weights, sources[:, None], axis=1)[:, 0]
    return tuple(map(AlignedToken, sources.tolist(), best.tolist()))


def coverage_penalty(attention_sum: npt.NDArray[np.floating[Any]], source_length: int) -> float:
    """The coverage penalty: 0 if the whole source is covered, and negative otherwise.

    Wu et al. 2016, https://arxiv.org/abs/1609.08144 (14), without the factor: the sum of log(min(coverage, 1)) over all
    source tokens.

    Args:
        attention_sum: sum of the attention weights over the target tokens, [S] with S ≥ `source_length`.
        source_length: number of source tokens, with the end-of-sentence token.
    """
    coverage = attention_sum[:source_length].astype(np.float64)
    return float(np.log(coverage.clip(LEAST_COVERAGE, 1.0)).sum())


def row_hypothesis(table: RowTable, search: Search, row: int, eos: int) -> Hypothesis:
    """The hypothesis in `row`, which its last token has ended."""
    options, length = search.options, table.positions.item(row)
    token = table.next_ids.item(row)
    return _hypothesis(
        options,
        table.tokens(row, 0, length - 1),
        table.log_probs[row, :length].tolist() if options.scores else (),
        None if token == eos else token,
        table.scores.item(row),
        alignment_of(table, row, 0, length - (token == eos)) if options.alignment else (),
    )


def beam_hypothesis(
    table: RowTable, search: Search, beam: int, last: int | None, log_prob: float, score: float
) -> Hypothesis:
    """The hypothesis that ends a live beam with one more token.

    Args:
        table: the state of the rows.
        search: the search of the beam.
        beam: number of the beam in its search.
        last: the last token; None if it is the end-of-sentence token.
        log_prob: natural log-probability of the last token.
        score: score of the hypothesis.
    """
    beams, options = search.beams, search.options
    assert beams is not None
    tokens, log_probs = unrolled(beams.paths[beam])
    length = len(tokens) + (last is not None)
    alignment = alignment_of(table, search.rows[beam], 0, length) if options.alignment else ()
    return _hypothesis(options, tokens, [*log_probs, log_prob], last, score, alignment)


def unrolled(path: Path) -> tuple[list[int], list[float]]:
    """The tokens of a path, and their log-probabilities, from first to last."""
    tokens: list[int] = []
    log_probs: list[float] = []
    while path is not None:
        token, log_prob, path = path
        tokens.append(token)
        log_probs.append(log_prob)
    return tokens[::-1], log_probs[::-1]


def alignment_of(table: RowTable, row: int, start: int, end: int) -> tuple[AlignedToken, ...]:
    """The alignment of a row's tokens `start` … `end` - 1."""
    source_length = table.source_length.item(row)
    return aligned_tokens(table.attention_weights[row, start:end, :source_length], source_length)


def _hypothesis(
    options: DecodingOptions,
    token_ids: Sequence[int],
    log_probs: Sequence[float],
    last: int | None,
    score: float,
    alignment: tuple[AlignedToken, ...],
) -> Hypothesis:
    return Hypothesis(
        tuple(token_ids) if last is None else (*token_ids, last),
        score if options.scores else None,
        last is None,
        tuple(log_probs) if options.scores else (),
        alignment,
    )


def new_committed_tokens(search: Search, table: RowTable) -> CommittedTokens | None:
    """The tokens of a live search that have become committed since the last call; None if there are none."""
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
    return CommittedTokens(tuple(tokens), alignment_of(table, row, start, end) if search.options.alignment else ())


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
