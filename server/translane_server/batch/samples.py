"""Drawing the next token of rows that sample, and the first tokens of those that become several."""

from __future__ import annotations

import numpy as np

from translane_server.backend import FloatArray, IntArray
from translane_server.batch.ranking import Child, RankedTokens
from translane_server.batch.rows import RowTable
from translane_server.batch.search import Kind, Search
from translane_server.decoding import processors
from translane_server.decoding.random_numbers import uniforms
from translane_server.decoding.sampling import sample_all, sample_candidates


def draw_tokens(
    ranked: RankedTokens, rows: IntArray, streams: IntArray, table: RowTable, eos: int
) -> tuple[IntArray, FloatArray]:
    """Draw a token for each of `rows`, with the random numbers of `streams`, both [D]; a row may occur repeatedly.

    Returns:
        The tokens and their log-probabilities, both [D]. Where everything is banned, the sentence ends.
    """
    tokens = np.zeros(len(rows), np.int64)
    log_probs = np.zeros(len(rows), np.float32)
    for kind, draw in ((Kind.SAMPLE_CANDIDATES, _from_candidates), (Kind.SAMPLE_VOCABULARY, _from_vocabulary)):
        drawn = np.flatnonzero(table.kind[rows] == kind)
        if drawn.size:
            tokens[drawn], log_probs[drawn] = draw(ranked, rows[drawn], streams[drawn], table, eos)
    return tokens, log_probs


def _from_candidates(
    ranked: RankedTokens, rows: IntArray, streams: IntArray, table: RowTable, eos: int
) -> tuple[IntArray, FloatArray]:
    nothing = ranked.scores[rows, 0] == -np.inf
    columns = sample_candidates(
        ranked.token_ids[rows],
        np.where(nothing[:, None], np.float32(0), ranked.scores[rows]),
        table.temperature[rows],
        np.minimum(table.top_k[rows], ranked.scores.shape[1]),
        table.top_p[rows],
        uniforms(table.seed[rows], streams, table.positions[rows]),
    )
    tokens, log_probs = ranked.token_ids[rows, columns], ranked.log_probs[rows, columns]
    for draw in np.flatnonzero(nothing).tolist():
        tokens[draw], log_probs[draw] = eos, ranked.log_prob(int(rows[draw]), eos)
    return tokens, log_probs


def _from_vocabulary(
    ranked: RankedTokens, rows: IntArray, streams: IntArray, table: RowTable, eos: int
) -> tuple[IntArray, FloatArray]:
    rules, logits = ranked.rules, ranked.logits
    assert logits is not None
    assert rules is not None
    numbers = [ranked.rule_rows[row] for row in rows.tolist()]
    scores = np.stack(
        [
            processors.whole_row(rules, number, logits[row], ranked.normalisers[row])
            for number, row in zip(numbers, rows.tolist(), strict=True)
        ]
    )
    for draw, top_k in enumerate(table.top_k[rows].tolist()):
        if 0 < top_k < scores.shape[1]:
            scores[draw, scores[draw] < np.partition(scores[draw], -top_k)[-top_k]] = -np.inf
    tokens = np.full(len(rows), eos, np.int64)
    open_draws = np.flatnonzero((scores > -np.inf).any(axis=1))
    if open_draws.size:
        open_rows = rows[open_draws]
        tokens[open_draws] = sample_all(
            scores[open_draws],
            table.temperature[open_rows],
            table.top_p[open_rows],
            uniforms(table.seed[open_rows], streams[open_draws], table.positions[open_rows]),
        )
    return tokens, logits[rows, tokens] - ranked.normalisers[rows]


def first_tokens(ranked: RankedTokens, search: Search, table: RowTable, eos: int) -> list[Child]:
    """What the one row of a search that becomes several goes on with: its samples, or its alternatives.

    There is at least one; where everything is banned, that is the end of the sentence.
    """
    (row,) = search.rows
    count = search.branches
    total = float(table.scores[row])
    if search.kind is not Kind.GREEDY:
        streams = np.arange(count)
        tokens, log_probs = draw_tokens(ranked, np.full(count, row), streams, table, eos)
    else:
        streams = np.zeros(count, np.int64)
        open_columns = np.flatnonzero(ranked.scores[row, :count] > -np.inf)
        tokens, log_probs = ranked.token_ids[row, open_columns], ranked.log_probs[row, open_columns]
        if not tokens.size:
            tokens, log_probs = np.array([eos]), np.array([ranked.log_prob(row, eos)], np.float32)
    return [
        Child(row, token, log_prob, total + log_prob, stream)
        for token, log_prob, stream in zip(tokens.tolist(), log_probs.tolist(), streams.tolist(), strict=False)
    ]
