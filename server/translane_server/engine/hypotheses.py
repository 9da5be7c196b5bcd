"""Makes hypotheses from rows and beams."""

from __future__ import annotations

from collections.abc import Sequence

from translane_server.engine.alignment import aligned_tokens
from translane_server.engine.options import DecodingOptions
from translane_server.engine.rows import RowTable
from translane_server.engine.search import Path, Search
from translane_server.engine.sentence import AlignedToken, Hypothesis


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
