"""Samples the next tokens of rows, and chooses the first tokens of samples and alternatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from translane_server.core.arrays import FloatArray, IntArray
from translane_server.engine import processors
from translane_server.engine.options import Sampling
from translane_server.engine.random_numbers import uniforms
from translane_server.engine.ranking import RankedTokens
from translane_server.engine.rows import RowTable
from translane_server.engine.sampling import sample_all, sample_candidates
from translane_server.engine.search import Kind, Search


class _Draws:
    """The parameters of D draws.

    Args:
        rows: the row of each draw, [D]; a row may occur several times.
        samplings: the sampling of each draw, [D].
        streams: the stream of random numbers of each draw, [D].
        table: the state of the rows.
    """

    def __init__(self, rows: IntArray, samplings: Sequence[Sampling], streams: IntArray, table: RowTable) -> None:
        self.rows = rows
        self.temperature = np.array([each.temperature for each in samplings])
        self.top_k = np.array([each.top_k for each in samplings])
        self.top_p = np.array([each.top_p for each in samplings])
        seeds = np.array([each.seed for each in samplings], np.uint64)
        self.uniforms = uniforms(seeds, streams, table.positions[rows])


def draw_tokens(
    ranked: RankedTokens, rows: IntArray, searches: Sequence[Search], streams: IntArray, table: RowTable, eos: int
) -> tuple[IntArray, FloatArray]:
    """Draw D tokens.

    Args:
        ranked: the best tokens of each row.
        rows: the row of each draw, [D]; a row may occur several times.
        searches: the search of each draw, [D].
        streams: the stream of random numbers of each draw, [D].
        table: the state of the rows.
        eos: the end-of-sentence id.

    Returns:
        The tokens and their log-probabilities, both [D]. The token is `eos` if all tokens of a row are banned.
    """
    tokens = np.zeros(len(rows), np.int64)
    log_probs = np.zeros(len(rows), np.float32)
    for kind, draw in _WAYS.items():
        drawn = [number for number, search in enumerate(searches) if search.kind is kind]
        if drawn:
            samplings = [sampling for each in drawn if (sampling := searches[each].task.sentence.options.sampling)]
            tokens[drawn], log_probs[drawn] = draw(ranked, _Draws(rows[drawn], samplings, streams[drawn], table), eos)
    return tokens, log_probs


def _from_candidates(ranked: RankedTokens, draws: _Draws, eos: int) -> tuple[IntArray, FloatArray]:
    rows = draws.rows
    nothing = ranked.scores[rows, 0] == -np.inf
    columns = sample_candidates(
        ranked.token_ids[rows],
        np.where(nothing[:, None], np.float32(0), ranked.scores[rows]),
        draws.temperature,
        np.minimum(draws.top_k, ranked.scores.shape[1]),
        draws.top_p,
        draws.uniforms,
    )
    tokens, log_probs = ranked.token_ids[rows, columns], ranked.log_probs[rows, columns]
    for draw in nothing.nonzero()[0].tolist():
        tokens[draw], log_probs[draw] = eos, ranked.log_prob(int(rows[draw]), eos)
    return tokens, log_probs


def _from_vocabulary(ranked: RankedTokens, draws: _Draws, eos: int) -> tuple[IntArray, FloatArray]:
    rules, logits, rows = ranked.rules, ranked.logits, draws.rows
    assert logits is not None
    assert rules is not None
    scores = np.stack(
        [
            processors.whole_row(rules, ranked.rule_rows[row], logits[row], ranked.normalisers[row])
            for row in rows.tolist()
        ]
    )
    for draw, top_k in enumerate(draws.top_k.tolist()):
        if 0 < top_k < scores.shape[1]:
            scores[draw, scores[draw] < np.partition(scores[draw], -top_k)[-top_k]] = -np.inf
    tokens = np.full(len(rows), eos, np.int64)
    there = np.flatnonzero((scores > -np.inf).any(axis=1))
    if there.size:
        tokens[there] = sample_all(scores[there], draws.temperature[there], draws.top_p[there], draws.uniforms[there])
    return tokens, logits[rows, tokens] - ranked.normalisers[rows]


_Way = Callable[[RankedTokens, _Draws, int], tuple[IntArray, FloatArray]]
_WAYS: dict[Kind, _Way] = {Kind.SAMPLE_CANDIDATES: _from_candidates, Kind.SAMPLE_VOCABULARY: _from_vocabulary}


def first_tokens(
    ranked: RankedTokens, search: Search, table: RowTable, eos: int
) -> tuple[IntArray, FloatArray, IntArray]:
    """The first generated tokens of a search with several samples or alternatives.

    Returns:
        The tokens, their log-probabilities and their streams of random numbers, all [B] with B ≥ 1. If all tokens are
        banned, each token is `eos`.
    """
    (row,), count = search.rows, search.branches
    if search.kind is not Kind.GREEDY:
        streams = np.arange(count)
        return *draw_tokens(ranked, np.full(count, row), [search] * count, streams, table, eos), streams
    there = (ranked.scores[row, :count] > -np.inf).nonzero()[0]
    if there.size:
        return ranked.token_ids[row, there], ranked.log_probs[row, there], np.zeros(len(there), np.int64)
    return np.array([eos]), np.array([ranked.log_prob(row, eos)], np.float32), np.zeros(1, np.int64)
