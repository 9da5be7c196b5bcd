"""Beams that need nothing of a step but their rows' best tokens: no rules, no prefix, no attention, nobody who listens.

Their hypotheses are few and short, and after a step of the decoder nothing of them is in the processor's caches. So
they are lists, and what goes on is chosen in plain Python; the row table only has what the backend is to be fed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from translane_server.backend import Candidates, FloatArray, IntArray, RowMove
from translane_server.batch.hypotheses import ended_hypothesis
from translane_server.batch.rows import RowTable
from translane_server.batch.search import LiveBeams, Path, Search
from translane_server.decoding.beam import Continuation, best_continuations


@dataclass(slots=True)
class PlainStep:
    """What a step has made of plain beams.

    Attributes:
        done: searches that are over.
        free: rows of those that go on which they no longer need.
        moves: copies of rows that are left to make for the backend.
    """

    done: list[Search] = field(default_factory=list)
    free: list[int] = field(default_factory=list)
    moves: list[RowMove] = field(default_factory=list)


def advance(
    searches: Iterable[Search], candidates: Candidates, by_row: list[Search], table: RowTable, eos: int
) -> PlainStep:
    """One step of `searches`, which are plain beams.

    Args:
        searches: each once.
        candidates: what the step returned.
        by_row: what each row decodes; new rows are appended.
        table: the state of the rows.
        eos: the end-of-sentence id.
    """
    step = PlainStep()
    log_probs = candidates.log_probs
    assert log_probs is not None
    next_ids, positions = table.next_ids, table.positions
    for search in searches:
        beams = search.beams
        assert beams is not None
        going = _choose(search, beams, candidates.token_ids, log_probs, eos)
        if not going:
            step.done.append(search)
            continue
        rows, paths = search.rows, beams.paths
        parents = [beam for beam, _, _, _ in going]
        if len(set(parents)) == len(parents) == len(rows):
            search.rows = [rows[beam] for beam in parents]
        else:
            search.rows = _place(search, beams, parents, by_row, table, step)
        if search.job.sentence.options.scores:
            beams.paths = [(token, log_probs.item(rows[beam], column), paths[beam]) for beam, column, token, _ in going]
        else:
            beams.paths = [(token, 0.0, paths[beam]) for beam, _, token, _ in going]
        beams.scores = [score for _, _, _, score in going]
        beams.length += 1
        for row, (_, _, token, _) in zip(search.rows, going, strict=True):
            next_ids[row], positions[row] = token, beams.length
    return step


def _choose(
    search: Search, beams: LiveBeams, token_ids: IntArray, log_probs: FloatArray, eos: int
) -> Sequence[Continuation]:
    """What a search goes on with, nothing if it is over; what ends is put into its pool, if it is good enough."""
    options, pool, rows = search.job.sentence.options, search.pool, search.rows
    assert pool is not None
    length = beams.length + 1  # with the token that is chosen
    going, ending = best_continuations(
        rows,
        beams.scores,
        token_ids,
        log_probs,
        beam_size=options.beam_size,
        eos=eos,
        all_end=length >= options.max_length,
    )
    for beam, column, token, total in ending:
        score = pool.normalise(total, length)
        if pool.accepts(score):
            last = None if token == eos else token
            tokens, told = _told(beams.paths[beam])
            log_prob = log_probs.item(rows[beam], column)
            pool.add(score, ended_hypothesis(options, tokens, told, last, log_prob, score))
    assert going or pool.hypotheses, "nothing has a probability"
    if going and pool.is_final(going[0][3], length):
        return ()
    return going


def _place(
    search: Search, beams: LiveBeams, parents: Sequence[int], by_row: list[Search], table: RowTable, step: PlainStep
) -> list[int]:
    """The row of each child of `parents`: its parent's, one whose hypothesis died, or one behind the others."""
    rows, paths, length = search.rows, beams.paths, beams.length
    died = [beam for beam in range(len(rows)) if beam not in parents]
    stayed: set[int] = set()
    placed: list[int] = []
    for parent in parents:
        row = source = rows[parent]
        if parent not in stayed:
            stayed.add(parent)
        elif died:
            other = died.pop(0)
            row = rows[other]
            shared = length - _differing(paths[parent], paths[other])
            # the decoder's start is fed before the tokens, and what rows share of both is not copied
            step.moves.append(RowMove(source, row, 1 + length, 0, 1 + shared))
        else:
            row = len(by_row)
            by_row.append(search)
            table.copy_settings(source, row)
            step.moves.append(RowMove(source, row, 1 + length, search.job.source_length))
        placed.append(row)
    step.free += [rows[beam] for beam in died]
    return placed


def _differing(path: Path, other: Path) -> int:
    """How many of their last tokens two hypotheses of equal length do not share."""
    count = 0
    while path is not other:
        assert path is not None
        assert other is not None
        path, other = path[2], other[2]
        count += 1
    return count


def _told(path: Path) -> tuple[list[int], list[float]]:
    """The tokens of a hypothesis, and their log-probabilities where they are told."""
    tokens: list[int] = []
    log_probs: list[float] = []
    while path is not None:
        token, log_prob, path = path
        tokens.append(token)
        log_probs.append(log_prob)
    return tokens[::-1], log_probs[::-1]
