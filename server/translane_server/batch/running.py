"""The running batch: continuous batching, step by step.

A sentence joins at its next decoder step and leaves it the moment it ends (iteration-level scheduling: Yu et al. 2022,
https://www.usenix.org/conference/osdi22/presentation/yu). What is decoded for a sentence never depends on the
sentences beside it.

A sentence begins with one row; beams, samples and alternatives become several when their first token is generated. A
hypothesis that goes on stays in its row, and one more child of it takes the row of a hypothesis that died, or a free
one: only that is copied. Rows of sentences that have ended are holes, which the next sentences fill; what is left of
them is closed before a step, so that it runs rows 0 … size-1.

A step advances its rows group by group: those that take their best candidate, beams, and the others. Each group costs
what its own rows cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from translane_server.arrays import Int32Array, IntArray
from translane_server.backend import BEST_TOKEN, BEST_TOKEN_ALONE, Candidates, RowMove, StepNeeds
from translane_server.batch.beams import BeamStep
from translane_server.batch.begin import SearchFactory
from translane_server.batch.certain import new_certain_tokens
from translane_server.batch.hypotheses import row_hypothesis
from translane_server.batch.ranking import RankedTokens, rank_tokens
from translane_server.batch.row_step import RowStep
from translane_server.batch.rows import RowTable
from translane_server.batch.search import Kind, Search
from translane_server.sentence import CertainTokens, Task
from translane_server.vocabulary import TargetVocabulary

_Rows = IntArray | slice


@dataclass(slots=True)
class Update:
    """What a step has changed.

    Attributes:
        done: searches that have ended.
        moves: copies that the backend has to make, in order.
        certain: of searches that go on and are streamed, the tokens that have become certain.
    """

    done: list[Search] = field(default_factory=list)
    moves: list[RowMove] = field(default_factory=list)
    certain: list[tuple[Search, CertainTokens]] = field(default_factory=list)


class RunningBatch:
    """What is decoding, row by row.

    The caller passes every returned move to the backend. This keeps the backend's rows equal to these.

    Args:
        rows: R, how many rows there are.
        target_capacity: most tokens of a row.
        source_capacity: most source tokens of a row.
        vocabulary: of the target.
    """

    def __init__(self, rows: int, target_capacity: int, source_capacity: int, vocabulary: TargetVocabulary) -> None:
        self._eos = vocabulary.eos
        self._table = RowTable(rows, target_capacity, source_capacity)
        self._factory = SearchFactory(vocabulary)
        self._start = vocabulary.decoder_start
        self._by_row: list[Search] = []
        self._holes: list[int] = []  # rows whose search has ended, or lives on in others
        # Searches by what a step has to do for them, in the order in which they came. Greedy ones are in none of these.
        self._beams: dict[Search, None] = {}
        self._others: dict[Search, None] = {}
        self._special: dict[Search, None] = {}  # that may need logits
        self._streamed: dict[Search, None] = {}
        # How many searches take their best candidate, tell their scores, or need attention weights.
        self._greedy = self._scored = self._attending = 0
        self._needs: StepNeeds | None = None  # of the next step, where it is known
        self.reserved = 0  # rows that the sentences may come to take

    @property
    def size(self) -> int:
        """How many rows decode."""
        return len(self._by_row) - len(self._holes)

    @property
    def has_holes(self) -> bool:
        """Whether `compact` is to be called before the next step."""
        return len(self._holes) > 0

    @property
    def inputs(self) -> tuple[IntArray, Int32Array]:
        """The tokens to feed next, and at which positions: how many each row has been fed. Both [size]; no holes."""
        n = len(self._by_row)
        return self._table.next_ids[:n], self._table.positions[:n]

    @property
    def needs(self) -> StepNeeds:
        """What the next step has to return; there are no holes."""
        if self._special:
            self._drop_unspecial()
            return self._find_needs()
        if self._needs is None:
            self._needs = self._find_needs()
        return self._needs

    def add(self, tasks: Sequence[Task]) -> list[Search]:
        """Start decoding `tasks`, each in a row of its own."""
        started = []
        self._needs = None
        for task in tasks:
            row = self._holes.pop(0) if self._holes else len(self._by_row)  # the lowest one
            search = self._factory.begin(task, row)
            self._by_row[row : row + 1] = [search]
            sentence = task.sentence
            attention, greedy = sentence.options.attention, search.is_greedy_from(0)
            self._table.begin(
                row, self._start, len(sentence.source_ids), search.limit, greedy=greedy, attention=attention
            )
            self.reserved += task.rows
            self._scored += sentence.options.scores
            self._attending += attention
            self._greedy += greedy
            if search.beams is not None:
                self._beams[search] = None
            elif not greedy:
                self._others[search] = None
            if search.special_until:
                self._special[search] = None
            if task.streamed:
                self._streamed[search] = None
            started.append(search)
        return started

    def compact(self) -> list[RowMove]:
        """Close the holes with the last live rows; return the moves that takes."""
        size, leaving = self.size, set(self._holes)
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
        table.copy(staying, holes)
        del self._by_row[size:]
        self._holes = []
        return moves

    def advance(self, candidates: Candidates) -> Update:
        """Take what a step returned: every row gets a token, and whoever has ended leaves. There are no holes."""
        update, table, n = Update(), self._table, len(self._by_row)
        if self._attending and candidates.attention is not None:
            table.keep_attention(candidates.attention)
        if not (self._beams or self._others):
            free = self._advance_greedy(slice(n), candidates, update)
        else:
            special = () if candidates.logits is None else tuple(self._special)
            ranked = rank_tokens(candidates, special, table, self._eos)
            greedy: IntArray | None = table.greedy[:n].nonzero()[0] if self._greedy else None
            free = self._advance_others(ranked, update) if self._others else []
            if self._beams:
                free += self._advance_beams(ranked, update)
            if greedy is not None:
                free += self._advance_greedy(greedy, candidates, update)
        self._holes += free
        if self._streamed:
            found = [(search, new_certain_tokens(search, table)) for search in self._streamed]
            update.certain = [(search, tokens) for search, tokens in found if tokens]
        return update

    @property
    def greedy_steps(self) -> int:
        """How many greedy steps every row may take before it has to end.

        0 where a row does anything but take its best candidate, and where somebody waits for each token. There are no
        holes.
        """
        if self._beams or self._others or self._scored or self._attending or self._streamed or not self._by_row:
            return 0
        table, n = self._table, len(self._by_row)
        return int((table.limit[:n] - table.positions[:n]).min())

    def advance_ahead(self, token_ids: IntArray) -> Update:
        """Take the tokens of several greedy steps, [steps, n]; a row takes none after its end.

        There are at most `greedy_steps` of them, and no holes.
        """
        update, table = Update(), self._table
        going: IntArray = np.arange(len(self._by_row))
        for tokens in token_ids:
            chosen = tokens[going]
            table.append(going, chosen, None)
            over = (chosen == self._eos) | (table.positions[going] >= table.limit[going])
            self._holes += self._finish_rows(going[over].tolist(), update)
            going = going[~over]
        return update

    def drop(self, number: int) -> bool:
        """Give up the task of that number; whether it was decoding."""
        for row in range(len(self._by_row)):
            search = self._by_row[row]
            if search.task.number == number and row in search.rows and row not in self._holes:
                self._holes += search.rows
                self._end(search)
                return True
        return False

    def clear(self) -> None:
        """Forget what is decoding; the batch is not used again."""
        self._by_row, self._holes = [], []

    def _find_needs(self) -> StepNeeds:
        attention = self._attending > 0
        if not (self._beams or self._others or attention):
            return BEST_TOKEN if self._scored else BEST_TOKEN_ALONE
        asked = [search.asked_candidates for search in (*self._beams, *self._others)]
        logits = len(self._special) > 0
        return StepNeeds(
            1 << (max(asked, default=1) - 1).bit_length(),  # few different numbers, for the backend's sake
            log_probs=logits
            or self._scored > 0
            or any(search.kind is not Kind.GREEDY for search in self._others)
            or len(self._beams) > 0,
            logits=logits,
            attention=attention,
        )

    def _drop_unspecial(self) -> None:
        """Forget searches that need logits no more."""
        positions = self._table.positions
        passed = [each for each in self._special if positions.item(each.rows[0]) >= each.special_until]
        for search in passed:
            del self._special[search]
        if not self._special:
            self._needs = None

    def _end(self, search: Search) -> None:
        """Give back what a sentence holds."""
        self._needs = None
        options = search.task.sentence.options
        self.reserved -= options.rows
        self._scored -= options.scores
        self._attending -= options.attention
        self._greedy -= not (search in self._beams or search in self._others)
        for searches in (self._beams, self._others, self._special, self._streamed):
            searches.pop(search, None)

    def _finish_rows(self, rows: Sequence[int], update: Update) -> Sequence[int]:
        """The hypotheses of these rows, which are independent of others, have ended."""
        for row in rows:
            search = self._by_row[row]
            search.ended.append(row_hypothesis(self._table, search, row, self._eos))
            search.rows.remove(row)
            if not search.rows:
                self._end(search)
                update.done.append(search)
        return rows

    # Rows that take their best candidate.

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
        step = BeamStep(ranked, self._by_row, self._table, self._eos)
        over = [search for search in self._beams if not step.advance(search)]
        for search in over:
            step.free += search.rows
            self._end(search)
        update.done += over
        update.moves += step.moves
        return step.free

    # Rows with forced tokens or rules, and samples.

    def _advance_others(self, ranked: RankedTokens, update: Update) -> list[int]:
        table, searches = self._table, list(self._others)
        branching = [search for search in searches if search.branches > 1]
        step = RowStep(ranked, self._by_row, table, self._eos)
        step.advance(searches)
        update.moves += step.moves
        if any(search.branches == 1 for search in branching):
            self._needs = None
        free = step.ended(searches)
        for search in searches:
            if search.is_greedy_from(table.positions.item(search.rows[0])):
                table.greedy[search.rows] = True
                del self._others[search]
                self._greedy += 1
                self._needs = None
        self._finish_rows(free, update)
        return free
