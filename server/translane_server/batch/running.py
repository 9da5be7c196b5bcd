"""The running batch: which row decodes what, and what a step's candidates make of it.

A sentence begins with one row; beams, samples and alternatives become several when their first token is generated. A
hypothesis that goes on stays in its row, and one more child of it takes the row of a hypothesis that died, or a free
one: only that is copied. Rows of sentences that have ended are holes, which the next sentences fill; what is left of
them is closed before a step, so that it runs rows 0 … size-1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from translane_server.backend import (
    BEST_TOKEN,
    BEST_TOKEN_ALONE,
    BoolArray,
    Candidates,
    FloatArray,
    Int32Array,
    IntArray,
    RowMove,
    StepNeeds,
)
from translane_server.batch import plain_beams
from translane_server.batch.beams import continue_beams
from translane_server.batch.certain import report
from translane_server.batch.hypotheses import hypothesis_of
from translane_server.batch.placement import place
from translane_server.batch.ranking import Offspring, RankedTokens, rank_tokens
from translane_server.batch.row_setup import RowSetup
from translane_server.batch.rows import RowTable
from translane_server.batch.samples import draw_tokens, first_tokens
from translane_server.batch.search import Kind, Search
from translane_server.decoding import greedy
from translane_server.job import Job
from translane_server.request import Hypothesis
from translane_server.vocabulary import TargetVocabulary


@dataclass(slots=True)
class Update:
    """What a step has changed: sentences that are done, and the moves that the backend has to make, in order."""

    done: list[tuple[Job, tuple[Hypothesis, ...]]] = field(default_factory=list)
    moves: list[RowMove] = field(default_factory=list)


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
        self._setup = RowSetup(self._table, vocabulary)
        self._searches: list[Search] = []  # by row
        self._holes: list[int] = []  # rows whose search has ended, or lives on in others
        self._never: BoolArray = np.zeros(rows, np.bool_)
        self._greedy = self._beams = self._intricate = 0  # searches that are plain, of either kind, and others
        self._scored = 0  # searches whose hypotheses tell their scores
        self._needs: StepNeeds | None = None  # of the next step, where it is known
        self.reserved = 0  # rows that the sentences may come to take

    @property
    def size(self) -> int:
        """How many rows decode."""
        return len(self._searches) - len(self._holes)

    @property
    def jobs(self) -> list[Job]:
        """What each row decodes."""
        return [self._searches[row].job for row in self._live()]

    @property
    def positions(self) -> Int32Array:
        """Where to feed the next tokens: the number of tokens each row has been fed, [size]; there are no holes."""
        return self._table.positions[: len(self._searches)]

    @property
    def token_ids(self) -> IntArray:
        """The tokens to feed next, [size]; there are no holes."""
        return self._table.next_ids[: len(self._searches)]

    @property
    def needs(self) -> StepNeeds:
        """What the next step has to return; there are no holes."""
        if self._needs is None:
            self._needs = self._find_needs()
        needs = self._needs
        if needs.logits:  # for how long depends on positions
            self._needs = None
        return needs

    def _find_needs(self) -> StepNeeds:
        if not (self._beams or self._intricate):
            return BEST_TOKEN if self._scored else BEST_TOKEN_ALONE
        table, n = self._table, len(self._searches)
        most = int(table.num_candidates[:n].max())
        num_candidates = 1 << (most - 1).bit_length()  # few different numbers, for the backend's sake
        if not self._intricate:
            return StepNeeds(num_candidates)
        logits = bool((table.positions[:n] < table.special_until[:n]).any())
        return StepNeeds(
            num_candidates,
            log_probs=logits or self._scored > 0 or bool((table.kind[:n] != Kind.GREEDY).any()),
            logits=logits,
            attention=bool(table.attention[:n].any()),
        )

    def add(self, jobs: Sequence[Job]) -> list[int]:
        """Start decoding `jobs`, each in a row of its own; return the rows."""
        rows = []
        self._needs = None
        for job in jobs:
            row = self._holes.pop(0) if self._holes else len(self._searches)  # the lowest one
            search = self._setup.begin(job, row, self._searches)
            self._searches[row : row + 1] = [search]
            self.reserved += job.rows
            self._count(search, 1)
            rows.append(row)
        return rows

    def compact(self) -> list[RowMove]:
        """Close the holes with the last live rows; return the moves that takes."""
        if not self._holes:
            return []
        size, leaving = self.size, set(self._holes)
        holes = sorted(row for row in leaving if row < size)
        staying = [row for row in range(size, len(self._searches)) if row not in leaving]
        for target, source in zip(holes, staying, strict=True):
            search = self._searches[target] = self._searches[source]
            search.rows[search.rows.index(source)] = target
        table = self._table
        moves = [
            RowMove(source, target, int(table.positions[source]), int(table.source_length[source]))
            for target, source in zip(holes, staying, strict=True)
        ]
        table.copy(staying, holes)
        del self._searches[size:]
        self._holes = []
        return moves

    def advance(self, candidates: Candidates) -> Update:
        """Take what a step returned: every row gets a token, and whoever has ended leaves. There are no holes."""
        update = Update()
        if self._intricate or (self._greedy and self._beams):
            free = self._advance_all(candidates, update)
        elif self._beams:
            free = self._advance_beams(dict.fromkeys(self._searches), candidates, update)
        else:
            free = self._advance_greedily(candidates, update)
        self._remove(free)
        return update

    @property
    def greedy_steps(self) -> int:
        """How many greedy steps every row may take before it has to end; 0 where a row is not plain greedy search.

        There are no holes.
        """
        if self._beams or self._intricate or self._scored or not self._greedy:
            return 0
        table, n = self._table, len(self._searches)
        return int((table.limit[:n] - table.positions[:n]).min())

    def advance_ahead(self, token_ids: IntArray) -> Update:
        """Take the tokens of several greedy steps, [steps, n]; a row takes none after its end.

        There are at most `greedy_steps` of them, and no holes.
        """
        update, table = Update(), self._table
        going = np.arange(len(self._searches))
        free: list[int] = []
        for tokens in token_ids:
            chosen = tokens[going]
            table.append(going, chosen, None)
            over = greedy.ends(chosen, table.positions[going], table.limit[going], self._eos)
            ended: list[int] = going[over].tolist()
            for row in ended:
                self._finish_row(row, update)
            free += ended
            going = going[~over]
        self._remove(free)
        return update

    def drop(self, unwanted: Callable[[Job], bool]) -> None:
        """Give up the sentences that are `unwanted`."""
        leaving = [row for row in self._live() if unwanted(self._searches[row].job)]
        for search in {id(self._searches[row]): self._searches[row] for row in leaving}.values():
            self._end(search)
        self._remove(leaving)

    def clear(self) -> None:
        """Forget what is decoding; the batch is not used again."""
        self._searches, self._holes = [], []

    def _live(self) -> list[int]:
        holes = set(self._holes)
        return [row for row in range(len(self._searches)) if row not in holes]

    def _remove(self, rows: Sequence[int]) -> None:
        self._holes += rows

    def _count(self, search: Search, change: int) -> None:
        if not search.plain:
            self._intricate += change
        elif search.beams is None:
            self._greedy += change
        else:
            self._beams += change
        if search.job.sentence.options.scores:
            self._scored += change

    def _end(self, search: Search) -> None:
        """Give back what a sentence holds."""
        self._needs = None
        self.reserved -= search.job.rows
        self._count(search, -1)
        self._setup.end(search)

    # A step of a batch that only has plain greedy rows.

    def _advance_greedily(self, candidates: Candidates, update: Update) -> list[int]:
        table, n = self._table, len(self._searches)
        tokens, log_probs = greedy.choose(candidates)
        table.append(slice(n), tokens, log_probs)
        if log_probs is not None:
            table.scores[:n] += log_probs
        over = greedy.ends(tokens, table.positions[:n], table.limit[:n], self._eos)
        free: list[int] = over.nonzero()[0].tolist()
        for row in free:
            self._finish_row(row, update)
        return free

    def _finish_row(self, row: int, update: Update) -> None:
        """The hypothesis of a row that is independent of others has ended."""
        table, search = self._table, self._searches[row]
        before, token = table.positions.item(row) - 1, table.next_ids.item(row)
        last = None if token == self._eos else token
        log_prob, score = table.log_probs.item(row, before), table.scores.item(row)
        search.ended.append(hypothesis_of(table, search, row, before, last, log_prob, score))
        search.rows.remove(row)
        if not search.rows:
            self._end(search)
            update.done.append((search.job, search.hypotheses()))

    # A step of a batch that only has plain beams, or of those of another one.

    def _advance_beams(self, searches: Iterable[Search], candidates: Candidates, update: Update) -> list[int]:
        step = plain_beams.advance(searches, candidates, self._searches, self._table, self._eos)
        update.moves += step.moves
        return self._finish(step.done, update) + step.free

    def _finish(self, searches: Iterable[Search], update: Update) -> list[int]:
        """End searches that are done; return their rows."""
        free: list[int] = []
        for search in searches:
            free += search.rows
            self._end(search)
            update.done.append((search.job, search.hypotheses()))
        return free

    # A step of any batch.

    def _advance_all(self, candidates: Candidates, update: Update) -> list[int]:
        table, searches, eos = self._table, self._searches, self._eos
        n = len(searches)
        if candidates.attention is not None:
            table.keep_attention(candidates.attention)
        # Rows with forced tokens have asked for logits.
        forced = self._never[:n] if candidates.logits is None else table.positions[:n] < table.forced_length[:n]
        ranked = rank_tokens(candidates, forced, table, searches, self._setup.masks, eos)
        in_groups = [search.goes_on_in_groups for search in searches]
        grouped = dict.fromkeys(search for row, search in enumerate(searches) if in_groups[row] and not forced[row])
        alone = np.flatnonzero(forced | ~np.array(in_groups))
        offspring, dead = self._offspring(ranked, [search for search in grouped if search.beams is None], update)
        placement = place(offspring, searches, table)
        update.moves += placement.moves
        if placement.rows:
            rows = np.array(placement.rows)
            table.append(rows, np.array(offspring.token_ids), np.array(offspring.log_probs, np.float32))
            table.scores[rows] = offspring.scores
            table.stream[rows] = offspring.streams
        free = dead + placement.free
        if self._beams:
            beams = [search for search in grouped if search.beams is not None]
            free += self._advance_beams(beams, candidates, update)
        if alone.size:
            tokens, log_probs = self._next_tokens(ranked, alone, forced)
            table.append(alone, tokens, log_probs)
            generating = ~forced[alone]
            table.scores[alone[generating]] += log_probs[generating]
        if any(search.kind is not Kind.BEAM for search in searches):
            free += self._finish_rows(update)
        report(searches, table, free)
        return free

    def _next_tokens(self, ranked: RankedTokens, rows: IntArray, forced: BoolArray) -> tuple[IntArray, FloatArray]:
        """The next token of each of `rows`, which go on alone, and its log-probability."""
        table, eos = self._table, self._eos
        tokens, log_probs = ranked.token_ids[rows, 0], ranked.log_probs[rows, 0]
        for number in np.flatnonzero(ranked.scores[rows, 0] == -np.inf).tolist():  # everything is banned
            tokens[number], log_probs[number] = eos, ranked.log_prob(int(rows[number]), eos)
        for number in np.flatnonzero(forced[rows]).tolist():
            row = int(rows[number])
            tokens[number] = table.forced[row, table.positions[row]]
            log_probs[number] = ranked.log_prob(row, tokens[number])
        drawn = np.flatnonzero((table.kind[rows] != Kind.GREEDY) & ~forced[rows])
        if drawn.size:
            of_rows = rows[drawn]
            tokens[drawn], log_probs[drawn] = draw_tokens(ranked, of_rows, table.stream[of_rows], table, eos)
        return tokens, log_probs

    def _offspring(
        self, ranked: RankedTokens, searches: Iterable[Search], update: Update
    ) -> tuple[Offspring, list[int]]:
        """What `searches` of several hypotheses go on with, and the rows of those that are done."""
        table, eos = self._table, self._eos
        offspring = Offspring()
        beams = []
        for search in searches:
            if search.kind is Kind.BEAM:
                beams.append(search)
            else:
                offspring.add(search, first_tokens(ranked, search, table, eos))
                search.branches = 1
                self._needs = None
                row = search.rows[0]
                table.num_candidates[row] += search.num_candidates - table.needed[row]
                table.needed[row] = search.num_candidates
        done = continue_beams(ranked, beams, table, eos, offspring)
        return offspring, self._finish(done, update)

    def _finish_rows(self, update: Update) -> list[int]:
        """End the hypotheses of rows that are no beams; return the rows."""
        table, n = self._table, len(self._searches)
        positions = table.positions[:n]
        generated = positions > table.forced_length[:n]
        over = (generated & (table.next_ids[:n] == self._eos)) | (positions >= table.limit[:n])
        free: list[int] = np.flatnonzero(over & (table.kind[:n] != Kind.BEAM)).tolist()
        for row in free:
            self._finish_row(row, update)
        return free
