"""From a row to the hypothesis it holds."""

from __future__ import annotations

from collections.abc import Sequence

from translane_server.batch.rows import RowTable
from translane_server.batch.search import Search
from translane_server.decoding.alignment import aligned_tokens
from translane_server.options import DecodingOptions
from translane_server.request import AlignedToken, FinishReason, Hypothesis


def hypothesis_of(
    table: RowTable, search: Search, row: int, length: int, last: int | None, log_prob: float, score: float
) -> Hypothesis:
    """The hypothesis of `row`: its first `length` tokens and one more, which ends it.

    Args:
        table: the state of the rows.
        search: what the row decodes.
        row: its number.
        length: how many of the row's tokens are part of it.
        last: the token after these; None where the sentence ends there.
        log_prob: natural log-probability of `last`, or of the end of the sentence.
        score: what the search ranks it by.
    """
    options = search.job.sentence.options
    tokens = table.tokens(row, length)
    log_probs = table.log_probs[row, :length].tolist() if options.scores else ()
    alignment = alignment_of(table, row, length + (last is not None)) if options.alignment else ()
    return ended_hypothesis(options, tokens, log_probs, last, log_prob, score, alignment)


def ended_hypothesis(
    options: DecodingOptions,
    token_ids: Sequence[int],
    log_probs: Sequence[float],
    last: int | None,
    log_prob: float,
    score: float,
    alignment: tuple[AlignedToken, ...] = (),
) -> Hypothesis:
    """The hypothesis of some tokens and one more, which ends it.

    Args:
        options: how its sentence is decoded.
        token_ids: the tokens before the last one.
        log_probs: their natural log-probabilities, where they are told.
        last: the token after these; None where the sentence ends there.
        log_prob: natural log-probability of `last`, or of the end of the sentence.
        score: what the search ranks it by.
        alignment: of all tokens, where it is told.
    """
    return Hypothesis(
        token_ids=tuple(token_ids) if last is None else (*token_ids, last),
        score=score if options.scores else None,
        finish_reason=FinishReason.END_OF_SENTENCE if last is None else FinishReason.MAX_LENGTH,
        token_log_probs=(*log_probs, log_prob) if options.scores else (),
        alignment=alignment,
    )


def alignment_of(table: RowTable, row: int, length: int) -> tuple[AlignedToken, ...]:
    """The alignment of a row's first `length` tokens."""
    source_length = int(table.source_length[row])
    return aligned_tokens(table.attention_weights[row, :length, :source_length], source_length)
