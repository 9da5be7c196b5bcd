"""The running batch: continuous batching, step by step.

A sentence joins the batch between two decode steps and leaves it as soon as it ends (iteration-level scheduling: Yu et
al. 2022, https://www.usenix.org/conference/osdi22/presentation/yu). The result of a sentence never depends on the other
sentences in the batch.

A sentence begins with one row. Beams, samples and alternatives get more rows with their first generated token. A
hypothesis stays in its row. If a beam has several children, each further child is copied to the row of a dead beam or
to a new row. The rows of ended sentences are holes, which the next sentences fill. The remaining holes are closed
before a step, so that a step runs rows 0 … size-1.

A step advances three groups of rows, one after the other: greedy rows, beams, and all other rows. The cost of a group
depends on its own rows only.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Container
from dataclasses import dataclass, field

import numpy as np

from translane_server.core.arrays import Int32Array, IntArray
from translane_server.engine.beam_step import BeamStep
from translane_server.engine.general_step import GeneralStep
from translane_server.engine.options import Kind
from translane_server.engine.processors import RankedTokens, rank_tokens
from translane_server.engine.rows import RowTable
from translane_server.engine.search import Search, SearchFactory, new_committed_tokens, row_hypothesis
from translane_server.engine.sequence import CommittedTokens, Sequence, TargetVocabulary
from translane_server.runtime.backend import BEST_TOKEN, BEST_TOKEN_ALONE, Align, Candidates, RowMove, StepNeeds

_Rows = IntArray | slice


@dataclass(slots=True)
class Update:
    """The changes that a step has made."""

    done: list[Search] = field(default_factory=list)
    moves: list[RowMove] = field(default_factory=list)  # row copies that the backend must make


class RunningBatch:
    """The sentences that decode, and their rows.

    The caller passes all returned moves to the backend, so that the backend's rows match the rows here. `align` returns
    attention weights of the steps that were kept; see `Backend`.
    """

    def __init__(self, rows: int, target_capacity: int, vocabulary: TargetVocabulary, align: Align) -> None:
        self._eos = vocabulary.eos
        self._align = align
        self._table = RowTable(rows, target_capacity)
        self._factory = SearchFactory(vocabulary)
        self._start = vocabulary.decoder_start
        self._by_row: list[Search] = []
        # rows that no search uses. If there are any, `compact` must be called before the next step.
        self.holes: list[int] = []
        # Searches in order of arrival, by the work of a step. `_general` holds searches that are neither beams nor
        # greedy.
        self._beams: dict[Search, None] = {}
        self._general: dict[Search, None] = {}
        self._with_logits: dict[Search, None] = {}  # searches that may need logits
        self.streamed: dict[Search, None] = {}  # the searches whose committed tokens are reported
        # Numbers of searches: with greedy rows, with requested scores, and with steps that are kept.
        self._greedy = self._scored = self._attending = 0
        self._needs: StepNeeds | None = None  # needs of the next step; None if they have changed
        self.reserved = 0  # maximum number of rows that the sentences may take
        self.steps = self.row_steps = 0  # number of steps so far, and of their rows in all

    @property
    def size(self) -> int:
        """Number of rows that decode."""
        return len(self._by_row) - len(self.holes)

    @property
    def inputs(self) -> tuple[IntArray, Int32Array]:
        """The tokens to feed next, and their positions, both [size]. There must be no holes."""
        n = len(self._by_row)
        return self._table.next_ids[:n], self._table.positions[:n]

    @property
    def needs(self) -> StepNeeds:
        """The results that the next step has to return. There must be no holes."""
        if self._with_logits:
            self._drop_without_logits()
            return self._find_needs()
        if self._needs is None:
            self._needs = self._find_needs()
        return self._needs

    @property
    def keep(self) -> int | None:
        """The number under which the backend must keep the next step for alignments; None if no row needs it."""
        return self.steps if self._attending else None

    def add(self, sequences: abc.Sequence[Sequence]) -> list[Search]:
        """Start to decode `sequences`, each in one row."""
        started = []
        self._needs = None
        for sequence in sequences:
            row = self.holes.pop(0) if self.holes else len(self._by_row)  # the lowest hole
            search = self._factory.begin(sequence, row)
            search.entered_step, search.entered_row_steps = self.steps, self.row_steps
            self._by_row[row : row + 1] = [search]
            sentence = sequence.sentence
            greedy = search.is_greedy_from(0)
            self._table.begin(row, self._start, len(sentence.source_ids), search.limit, greedy=greedy)
            self.reserved += sentence.options.rows
            self._scored += sentence.options.scores
            self._attending += sentence.options.attention
            self._greedy += greedy
            if search.beams is not None:
                self._beams[search] = None
            elif not greedy:
                self._general[search] = None
            if search.logits_until:
                self._with_logits[search] = None
            if sequence.streamed:
                self.streamed[search] = None
            started.append(search)
        return started

    def compact(self) -> list[RowMove]:
        """Move the last rows into the holes; return these moves."""
        size, leaving = self.size, set(self.holes)
        holes = sorted(row for row in leaving if row < size)
        staying = [row for row in range(size, len(self._by_row)) if row not in leaving]
        for target, source in zip(holes, staying, strict=True):
            search = self._by_row[target] = self._by_row[source]
            search.rows[search.rows.index(source)] = target
        table = self._table
        moves = [
            RowMove(source, target, int(table.positions[source]), int(table.source_length[source]))
            for target, source in zip(holes, staying, strict=True)
        ]
        table.copy(moves)
        del self._by_row[size:]
        self.holes = []
        return moves

    def advance(self, candidates: Candidates) -> Update:
        """Give every row a token, and remove ended sentences. There must be no holes."""
        update, table, n = Update(), self._table, len(self._by_row)
        self.steps += 1
        self.row_steps += n
        if not (self._beams or self._general):
            free = self._advance_greedy(slice(n), candidates, update)
        else:
            with_logits = () if candidates.logits is None else tuple(self._with_logits)
            ranked = rank_tokens(candidates, with_logits, table, self._eos)
            greedy: IntArray | None = table.greedy[:n].nonzero()[0] if self._greedy else None
            free = self._advance_general(ranked, update) if self._general else []
            if self._beams:
                free += self._advance_beams(ranked, update)
            if greedy is not None:
                free += self._advance_greedy(greedy, candidates, update)
        self.holes += free
        return update

    def committed(self) -> list[tuple[Search, CommittedTokens]]:
        """The new committed tokens of streamed searches that have not ended. The backend has made the moves."""
        found = [(search, new_committed_tokens(search, self._table, self._align)) for search in self.streamed]
        return [(search, tokens) for search, tokens in found if tokens]

    @property
    def greedy_steps(self) -> int:
        """The number of greedy steps that every row has room for.

        0 if a row is not greedy, needs scores, or is streamed. There must be no holes.
        """
        if self._beams or self._general or self._scored or self.streamed or not self._by_row:
            return 0
        table, n = self._table, len(self._by_row)
        return int((table.limit[:n] - table.positions[:n]).min())

    def advance_ahead(self, token_ids: IntArray) -> Update:
        """Give every row the tokens of 1 … `greedy_steps` steps, [steps, n]. Those after an end are dropped.

        There must be no holes.
        """
        update, table, (steps, n) = Update(), self._table, token_ids.shape
        self.steps += steps
        self.row_steps += steps * n
        ends = token_ids == self._eos
        over = ends.any(axis=0)
        table.extend(token_ids, np.where(over, ends.argmax(axis=0) + 1, steps))
        over |= table.positions[:n] >= table.limit[:n]
        if free := over.nonzero()[0].tolist():
            self.holes += self._finish_rows(free, update)
        return update

    def drop(self, numbers: Container[int]) -> list[int]:
        """Give up the sequences of these numbers. Return the numbers of those that were decoding."""
        dropped = [search for search in self._searches() if search.sequence.number in numbers]
        for search in dropped:
            self.holes += search.rows
            self._end(search)
        return [search.sequence.number for search in dropped]

    @property
    def sequences(self) -> list[Sequence]:
        """The sequences that decode."""
        return [search.sequence for search in self._searches()]

    def _searches(self) -> list[Search]:
        holes = set(self.holes)
        return list(dict.fromkeys(search for row, search in enumerate(self._by_row) if row not in holes))

    def _find_needs(self) -> StepNeeds:
        if not (self._beams or self._general):
            return BEST_TOKEN if self._scored else BEST_TOKEN_ALONE
        asked = [search.asked_candidates for search in (*self._beams, *self._general)]
        logits = len(self._with_logits) > 0
        return StepNeeds(
            1 << (max(asked, default=1) - 1).bit_length(),  # a power of two, so that backends see few numbers
            log_probs=logits
            or self._scored > 0
            or any(search.options.kind is not Kind.GREEDY for search in self._general)
            or len(self._beams) > 0,
            logits=logits,
        )

    def _drop_without_logits(self) -> None:
        """Remove searches from `_with_logits` that no longer need logits."""
        positions = self._table.positions
        passed = [each for each in self._with_logits if positions.item(each.rows[0]) >= each.logits_until]
        for search in passed:
            del self._with_logits[search]
        if not self._with_logits:
            self._needs = None

    def _end(self, search: Search) -> None:
        """Remove a sentence from all groups and counts."""
        self._needs = None
        options = search.options
        self.reserved -= options.rows
        self._scored -= options.scores
        self._attending -= options.attention
        self._greedy -= not (search in self._beams or search in self._general)
        for searches in (self._beams, self._general, self._with_logits, self.streamed):
            searches.pop(search, None)

    def _finish_rows(self, rows: abc.Sequence[int], update: Update) -> abc.Sequence[int]:
        """End the hypotheses of these independent rows. Return the rows."""
        for row in rows:
            search = self._by_row[row]
            search.ended.append(row_hypothesis(self._table, search, row, self._eos))
            if len(search.rows) > 1:
                search.rows.remove(row)
            else:
                self._end(search)
                update.done.append(search)
        return rows

    # Greedy rows.

    def _advance_greedy(self, rows: _Rows, candidates: Candidates, update: Update) -> list[int]:
        table = self._table
        tokens = candidates.token_ids[rows, 0]
        log_probs = None if candidates.log_probs is None else candidates.log_probs[rows, 0]
        table.append(rows, tokens, log_probs)
        if log_probs is not None:
            table.scores[rows] += log_probs
        over = (tokens == self._eos) | (table.positions[rows] >= table.limit[rows])
        ended = over.nonzero()[0]
        free: list[int] = (ended if isinstance(rows, slice) else rows[ended]).tolist()
        if free:
            self._finish_rows(free, update)
        return free

    # Beams.

    def _advance_beams(self, ranked: RankedTokens, update: Update) -> list[int]:
        step = BeamStep(ranked, self._by_row, self._table, self._eos, self._align)
        over = [search for search in self._beams if not step.advance(search)]
        for search in over:
            step.free += search.rows
            self._end(search)
        update.done += over
        update.moves += step.moves
        return step.free

    # Rows with forced tokens or rules, and samples.

    def _advance_general(self, ranked: RankedTokens, update: Update) -> list[int]:
        table, searches = self._table, list(self._general)
        branching = [search for search in searches if search.branches > 1]
        step = GeneralStep(ranked, self._by_row, table, self._eos)
        step.advance(searches)
        update.moves += step.moves
        if any(search.branches == 1 for search in branching):
            self._needs = None
        free = step.ended(searches)
        for search in searches:
            if search.is_greedy_from(table.positions.item(search.rows[0])):
                table.greedy[search.rows] = True
                del self._general[search]
                self._greedy += 1
                self._needs = None
        self._finish_rows(free, update)
        return free
