"""The beams of the running batch: what they continue with, and which hypotheses end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap

from translane_server.batch.hypotheses import hypothesis_of
from translane_server.batch.ranking import Child, Offspring, RankedTokens
from translane_server.batch.rows import RowTable
from translane_server.batch.search import Search
from translane_server.decoding.alignment import coverage_penalty
from translane_server.decoding.beam import best_continuations

# What may go on, and what ends now; best first.
_Continuations = tuple[list[Child], list[Child]]


def continue_beams(
    ranked: RankedTokens, searches: Sequence[Search], table: RowTable, eos: int, offspring: Offspring
) -> list[Search]:
    """One step of `searches`: what goes on is added to `offspring`, and ended hypotheses to the pool of their search.

    Returns:
        The searches that are done.
    """
    done: list[Search] = []
    for search in searches:
        choose = _unconstrained if search.requirements is None else _constrained
        _settle(ranked, search, choose(ranked, search, table, eos), table, eos, offspring, done)
    return done


def _unconstrained(ranked: RankedTokens, search: Search, table: RowTable, eos: int) -> _Continuations:
    rows = search.rows

    def child(beam: int, column: int, token: int, score: float) -> Child:
        return Child(rows[beam], token, ranked.log_probs.item(rows[beam], column), score)

    going, ending = best_continuations(
        rows,
        table.scores[rows].tolist(),
        ranked.token_ids,
        ranked.scores,
        beam_size=search.beam_size,
        eos=eos,
        all_end=table.positions.item(rows[0]) + 1 >= table.limit.item(rows[0]),
    )
    return list(starmap(child, going)), list(starmap(child, ending))


def _constrained(ranked: RankedTokens, search: Search, table: RowTable, eos: int) -> _Continuations:
    requirements, beam_size = search.requirements, search.beam_size
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
    ranked: RankedTokens,
    search: Search,
    continuations: _Continuations,
    table: RowTable,
    eos: int,
    offspring: Offspring,
    done: list[Search],
) -> None:
    going, ending = continuations
    pool, row = search.pool, search.rows[0]
    assert pool is not None
    if going and not ending and not pool.is_full:
        offspring.add(search, going)
        return
    length = int(table.positions[row] + 1 - table.uncounted[row])  # with one more token, what counts as generated
    for child in ending:
        _offer(search, child, length, table, eos)
    if not going and not pool.hypotheses:  # everything is banned
        log_prob = ranked.log_prob(row, eos)
        _offer(search, Child(row, eos, log_prob, float(table.scores[row]) + log_prob), length, table, eos)
    if not going or pool.is_final(going[0].score, length):
        done.append(search)
    else:
        offspring.add(search, going)


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
