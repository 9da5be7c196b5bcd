"""The beams of the running batch: what they continue with, and which hypotheses end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from translane_server.decoding.alignment import coverage_penalty
from translane_server.decoding.beam import best_continuations
from translane_server.hypotheses import hypothesis_of
from translane_server.rows import RowTable
from translane_server.search import Search
from translane_server.step import Child, RankedTokens

# What may go on, and what ends now; best first.
_Continuations = tuple[list[Child], list[Child]]


def continue_beams(
    ranked: RankedTokens, searches: Sequence[Search], table: RowTable, eos: int
) -> dict[Search, list[Child]]:
    """One step of `searches`: ended hypotheses go to the pool of their search.

    Returns:
        The hypotheses that go on, best first; none where a search is done.
    """
    by_size: dict[int, list[Search]] = {}
    continuations: dict[Search, _Continuations] = {}
    for search in searches:
        if search.requirements is None:
            by_size.setdefault(search.job.sentence.options.beam_size, []).append(search)
        else:
            continuations[search] = _constrained(ranked, search, table, eos)
    for beam_size, group in by_size.items():
        continuations.update(zip(group, _unconstrained(ranked, group, beam_size, table, eos), strict=True))
    return {
        search: _settle(ranked, search, going, ending, table, eos) for search, (going, ending) in continuations.items()
    }


def _unconstrained(
    ranked: RankedTokens, searches: Sequence[Search], beam_size: int, table: RowTable, eos: int
) -> list[_Continuations]:
    rows = np.array([search.rows + search.rows[:1] * (beam_size - len(search.rows)) for search in searches])  # [G, B]
    live = np.array([len(search.rows) for search in searches])
    beam_scores = np.where(np.arange(beam_size) < live[:, None], table.scores[rows], -np.inf)
    columns = min(2 * beam_size, ranked.scores.shape[1])
    best = best_continuations(beam_scores, ranked.scores[rows][:, :, :columns], min(2, columns) * beam_size)
    parents = np.take_along_axis(rows, best.beams, axis=1)  # [G, C]
    at_limit = table.positions[rows[:, 0]] + 1 >= table.limit[rows[:, 0]]
    of_search = zip(
        at_limit.tolist(),
        parents.tolist(),
        ranked.token_ids[parents, best.columns].tolist(),
        ranked.log_probs[parents, best.columns].tolist(),
        best.scores.tolist(),
        strict=True,
    )
    return [_split(map(Child, *children), beam_size, eos, all_end=all_end) for all_end, *children in of_search]


def _split(children: map[Child], beam_size: int, eos: int, *, all_end: bool) -> _Continuations:
    going: list[Child] = []
    ending: list[Child] = []
    for rank, child in enumerate(children):
        if child.score == -np.inf:
            break
        if child.token == eos or all_end:
            if rank < beam_size:
                ending.append(child)
        elif len(going) < beam_size:
            going.append(child)
    return going, ending


def _constrained(ranked: RankedTokens, search: Search, table: RowTable, eos: int) -> _Continuations:
    requirements, beam_size = search.requirements, search.job.sentence.options.beam_size
    assert requirements is not None
    rows = search.rows
    position = int(table.positions[rows[0]])
    totals = table.scores[rows]
    parents = [(table.tokens(row, position), float(table.scores[row])) for row in rows]
    columns = min(2 * beam_size, ranked.scores.shape[1])
    steps_left = int(table.limit[rows[0]]) - position
    going, ending = requirements.select(
        parents,
        ranked.token_ids[rows, :columns],
        totals[:, None] + ranked.scores[rows, :columns],
        lambda parent, token: float(totals[parent]) + ranked.score(rows[parent], token),
        beam_size,
        steps_left,
    )
    ended = [Child(rows[parent], eos, ranked.log_prob(rows[parent], eos), score) for parent, score in ending]
    live = [Child(rows[parent], token, ranked.log_prob(rows[parent], token), score) for parent, token, score in going]
    if steps_left > 1:
        return live, ended
    complete = [
        child
        for child, (parent, token, _) in zip(live, going, strict=True)
        if requirements.progress([*parents[parent][0], token]).complete
    ]
    return [], (ended + complete) or live


def _settle(
    ranked: RankedTokens, search: Search, going: list[Child], ending: list[Child], table: RowTable, eos: int
) -> list[Child]:
    pool, row = search.pool, search.rows[0]
    assert pool is not None
    length = int(table.positions[row] + 1 - table.uncounted[row])
    for child in ending:
        _offer(search, child, length, table, eos)
    if not going and not pool.hypotheses:  # everything is banned
        log_prob = ranked.log_prob(row, eos)
        _offer(search, Child(row, eos, log_prob, float(table.scores[row]) + log_prob), length, table, eos)
    return [] if not going or pool.is_final(going[0].score, length) else going


def _offer(search: Search, child: Child, length: int, table: RowTable, eos: int) -> None:
    """Put an ended hypothesis of `length` generated tokens into the pool, if it is good enough."""
    pool, options = search.pool, search.job.sentence.options
    assert pool is not None
    score = pool.normalise(child.score, length)
    position = int(table.positions[child.parent])
    if options.coverage_penalty:
        source_length = int(table.source_length[child.parent])
        coverage = table.attention_weights[child.parent, : position + 1, :source_length].sum(axis=0)
        score += options.coverage_penalty * coverage_penalty(coverage, source_length)
    if pool.accepts(score):
        last = None if child.token == eos else child.token
        pool.add(score, hypothesis_of(table, search, child.parent, position, last, child.log_prob, score))
