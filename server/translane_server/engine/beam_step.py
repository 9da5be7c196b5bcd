"""The decode step of beam search: chooses the beams that continue, places them in rows, and ends hypotheses.

The search is that of Hugging Face's generate (https://huggingface.co/docs/transformers/main_classes/text_generation). A
step finds the 2 * beam_size best continuations. A continuation that ends the sentence enters the pool of ended
hypotheses, if it is among the first beam_size. The beam_size best of the others continue.

Beams are few and short, so plain Python lists are faster here than arrays. The row table holds the tokens to feed next,
and the history that rules read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from translane_server.core.arrays import FloatArray, IntArray
from translane_server.engine.phrases import RequiredPhrases
from translane_server.engine.processors import RankedTokens
from translane_server.engine.rows import RowTable
from translane_server.engine.search import LiveBeams, Path, Search, beam_hypothesis, coverage_penalty, unrolled
from translane_server.runtime.backend import Align, RowMove

# number of the beam, its next token, its score with that token, and the token's natural log-probability
Continuation = tuple[int, int, float, float]


@dataclass(eq=False, slots=True)
class BeamStep:
    """One decode step of beam search. `by_row` has the search of each row; new rows are appended."""

    ranked: RankedTokens
    by_row: list[Search]
    table: RowTable
    eos: int
    align: Align
    free: list[int] = field(default_factory=list)  # rows that continuing searches no longer need
    moves: list[RowMove] = field(default_factory=list)  # row copies that the backend must make

    def advance(self, search: Search) -> bool:
        """Give each beam of `search` a token. Return whether the search continues."""
        beams = search.beams
        assert beams is not None
        sentence = search.sequence.sentence
        if sentence.forced_ids and beams.length < len(sentence.forced_ids):
            self._force(search, beams, sentence.forced_ids[beams.length])
            return True
        if search.required is None:
            ranked = self.ranked
            going, ending = best_continuations(
                search.rows,
                beams.scores,
                ranked.token_ids,
                ranked.scores,
                ranked.log_probs,
                beam_size=sentence.options.beam_size,
                eos=self.eos,
                all_end=beams.length + 1 >= search.limit,
            )
        else:
            going, ending = self._constrained(search, beams, search.required)
        pool = beams.pool
        if ending or not going or pool.is_full:
            length = beams.length + 1 - search.uncounted  # with the new token
            for continuation in ending:
                self._offer(search, beams, continuation, length)
            if not going and not pool.hypotheses:  # everything is banned
                log_prob = self.ranked.log_prob(search.rows[0], self.eos)
                self._offer(search, beams, (0, self.eos, beams.scores[0] + log_prob, log_prob), length)
            if not going or pool.is_final(going[0][2], length):
                return False
        self._go_on(search, beams, going)
        return True

    def _force(self, search: Search, beams: LiveBeams, token: int) -> None:
        """Continue with a forced token. It does not count in the score; its log-probability is kept for the caller."""
        has_logits = beams.length < search.logits_until
        log_prob = self.ranked.log_prob(search.rows[0], token) if has_logits else 0.0
        self._go_on(search, beams, [(0, token, 0.0, log_prob)])

    def _constrained(
        self, search: Search, beams: LiveBeams, required: RequiredPhrases
    ) -> tuple[list[Continuation], list[Continuation]]:
        ranked, rows, eos = self.ranked, search.rows, self.eos
        beam_size = search.options.beam_size
        parents = [(unrolled(path)[0], score) for path, score in zip(beams.paths, beams.scores, strict=True)]
        columns = min(2 * beam_size, ranked.scores.shape[1])
        totals = np.array(beams.scores)
        steps_left = search.limit - beams.length
        going, ending = required.select(
            parents,
            ranked.token_ids[rows, :columns],
            totals[:, None] + ranked.scores[rows, :columns],
            lambda parent, token: beams.scores[parent] + float(ranked.whole_row(rows[parent])[token]),
            beam_size,
            steps_left,
        )
        ended = [(parent, eos, score, ranked.log_prob(rows[parent], eos)) for parent, score in ending]
        live = [(parent, token, score, ranked.log_prob(rows[parent], token)) for parent, token, score, _ in going]
        if steps_left > 1:
            return live, ended
        complete = [each for each in live if required.are_in([*parents[each[0]][0], each[1]])]
        return [], (ended + complete) or live

    def _offer(self, search: Search, beams: LiveBeams, continuation: Continuation, length: int) -> None:
        """Add an ended hypothesis of `length` generated tokens to the pool, if the pool accepts it."""
        beam, token, total, log_prob = continuation
        pool, options, row = beams.pool, search.options, search.rows[beam]
        score = pool.normalise(total, length)
        if options.coverage_penalty:
            attention = self.align(row, search.entered_step, [*unrolled(beams.paths[beam])[2], row])
            source_length = len(search.sequence.sentence.source_ids)
            score += options.coverage_penalty * coverage_penalty(attention.sum(axis=0), source_length)
        if pool.accepts(score):
            last = None if token == self.eos else token
            pool.add(score, beam_hypothesis(search, beam, last, log_prob, score))

    def _go_on(self, search: Search, beams: LiveBeams, going: Sequence[Continuation]) -> None:
        """Make the continuations the new live beams, each in its row."""
        table, rows, paths = self.table, search.rows, beams.paths
        parents = [beam for beam, _, _, _ in going]
        paths = [(token, log_prob, rows[beam], paths[beam]) for beam, token, _, log_prob in going]
        if len(set(parents)) == len(parents) == len(rows):
            search.rows = [rows[beam] for beam in parents]
        else:
            search.rows = self._place(search, beams, parents)
        beams.paths = paths
        beams.scores = [score for _, _, score, _ in going]
        beams.length += 1
        next_ids, positions = table.next_ids, table.positions
        for row, (_, token, _, _) in zip(search.rows, going, strict=True):
            next_ids[row], positions[row] = token, beams.length
        if search.keeps_history:
            table.history[search.rows, beams.length] = [token for _, token, _, _ in going]

    def _place(self, search: Search, beams: LiveBeams, parents: Sequence[int]) -> list[int]:
        """Choose a row for the child of each parent: the parent's row, the row of a dead beam, or a new row."""
        table, by_row = self.table, self.by_row
        rows, paths, length = search.rows, beams.paths, beams.length
        died = [beam for beam in range(len(rows)) if beam not in parents]
        stayed: set[int] = set()
        placed: list[int] = []
        moves: list[RowMove] = []
        for parent in parents:
            row = source = rows[parent]
            if parent not in stayed:
                stayed.add(parent)
            elif died:
                other = died.pop(0)
                row = rows[other]
                shared = length - _differing(paths[parent], paths[other])
                # Position 0 holds the decoder's start. The positions that both rows share are not copied.
                moves.append(RowMove(source, row, 1 + length, 0, 1 + shared))
            else:
                row = len(by_row)
                by_row.append(search)
                table.copy_state(source, row)
                moves.append(RowMove(source, row, 1 + length, table.source_length.item(source)))
            placed.append(row)
        if search.keeps_history:
            table.copy(moves)
        self.moves += moves
        self.free += [rows[beam] for beam in died]
        return placed


def _differing(path: Path, other: Path) -> int:
    """The number of last tokens in which two hypotheses of equal length differ."""
    count = 0
    while path is not other:
        assert path is not None
        assert other is not None
        path, other = path[3], other[3]
        count += 1
    return count


def best_continuations(
    rows: Sequence[int],
    totals: Sequence[float],
    token_ids: IntArray,
    scores: FloatArray,
    log_probs: FloatArray,
    *,
    beam_size: int,
    eos: int,
    all_end: bool,
) -> tuple[list[Continuation], list[Continuation]]:
    """Choose the best continuations of the B beams of a sentence.

    Each beam has a row and a total score, [B]. Each row has candidates, best first: their ids, what they add to the
    score (-inf is banned), and their natural log-probabilities, [n, K]. The function merges the candidates, and reads
    only as many as it needs. The beam with the lower number comes first between equal scores. With `all_end`, all
    continuations end, because they have the maximum length.

    Returns:
        At most `beam_size` continuations that do not end, and those that do, both best first.
    """
    going: list[Continuation] = []
    ending: list[Continuation] = []
    token_at, score_at, width = token_ids.item, scores.item, token_ids.shape[1]
    columns = [0] * len(rows)  # each beam's next candidate
    heads = [total + score_at(row, 0) for row, total in zip(rows, totals, strict=True)]  # and the beam's score with it
    for rank in range(2 * beam_size):
        score = max(heads)
        if score == -math.inf:
            break
        beam = heads.index(score)
        row, column = rows[beam], columns[beam]
        token = token_at(row, column)
        if token != eos and not all_end:
            going.append((beam, token, score, log_probs.item(row, column)))
            if len(going) == beam_size:
                break
        elif rank < beam_size:
            ending.append((beam, token, score, log_probs.item(row, column)))
        columns[beam] = column = column + 1
        heads[beam] = totals[beam] + score_at(row, column) if column < width else -math.inf
    return going, ending
