"""The decode step of independent rows that need more than their best candidate.

These rows have forced tokens, rules or sampling, or are alternatives before their first generated token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from translane_server.core.arrays import FloatArray, IntArray
from translane_server.engine.options import Kind
from translane_server.engine.processors import RankedTokens
from translane_server.engine.rows import RowTable
from translane_server.engine.sampling import draw_tokens, first_tokens
from translane_server.engine.search import Search
from translane_server.runtime.backend import RowMove


@dataclass(eq=False, slots=True)
class GeneralStep:
    """The step of these rows. `by_row` has the search of each row; new rows are appended."""

    ranked: RankedTokens
    by_row: list[Search]
    table: RowTable
    eos: int
    moves: list[RowMove] = field(default_factory=list)  # row copies that the backend must make

    def advance(self, searches: Iterable[Search]) -> None:
        """Give each row of `searches` a token. A search gets all its rows with its first generated token."""
        table = self.table
        alone: list[tuple[int, Search]] = []
        for search in searches:
            row = search.rows[0]
            if search.branches > 1 and table.positions[row] >= len(search.forced_ids):
                self._branch(search)
            else:
                alone += [(row, search) for row in search.rows]
        if alone:
            rows = np.array([row for row, _ in alone])
            tokens, log_probs, generated = self._next_tokens(rows, [search for _, search in alone])
            table.append(rows, tokens, log_probs)
            table.scores[rows[generated]] += log_probs[generated]

    def ended(self, searches: Iterable[Search]) -> list[int]:
        """The rows of `searches` whose hypotheses have ended in this step."""
        table, ended = self.table, []
        for search in searches:
            position = table.positions.item(search.rows[0])
            if position >= search.limit:
                ended += search.rows
            elif position > len(search.forced_ids):
                ended += [row for row in search.rows if table.next_ids[row] == self.eos]
        return ended

    def _branch(self, search: Search) -> None:
        """Give a search its first generated tokens, and one row for each of them."""
        table, by_row = self.table, self.by_row
        tokens, log_probs, streams = first_tokens(self.ranked, search, table, self.eos)
        (row,) = search.rows
        new = list(range(len(by_row), len(by_row) + len(tokens) - 1))
        length, source_length = table.positions.item(row) + 1, table.source_length.item(row)
        moves = [RowMove(row, target, length, source_length) for target in new]
        self.moves += moves
        table.copy(moves)
        by_row += [search] * len(new)
        search.rows = [row, *new]
        search.branches = 1
        rows = np.array(search.rows)
        table.append(rows, tokens, log_probs)
        table.scores[rows] += log_probs
        table.stream[rows] = streams

    def _next_tokens(self, rows: IntArray, searches: Sequence[Search]) -> tuple[IntArray, FloatArray, list[int]]:
        """The next token of each row, its log-probability, and the places in `rows` of the generated tokens."""
        ranked, table, eos = self.ranked, self.table, self.eos
        tokens, log_probs = ranked.token_ids[rows, 0], ranked.log_probs[rows, 0]
        drawn, generated = [], []
        for number, (row, search) in enumerate(zip(rows.tolist(), searches, strict=True)):
            forced, position = search.forced_ids, table.positions.item(row)
            if position < len(forced):
                tokens[number] = forced[position]
                log_probs[number] = ranked.log_prob(row, forced[position]) if position < search.logits_until else 0.0
                continue
            generated.append(number)
            if search.options.kind is not Kind.GREEDY:
                drawn.append(number)
            elif ranked.scores[row, 0] == -np.inf:  # everything is banned
                tokens[number], log_probs[number] = eos, ranked.log_prob(row, eos)
        if drawn:
            of_rows, of_searches = rows[drawn], [searches[number] for number in drawn]
            tokens[drawn], log_probs[drawn] = draw_tokens(
                ranked, of_rows, of_searches, table.stream[of_rows], table, eos
            )
        return tokens, log_probs, generated
