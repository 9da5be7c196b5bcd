"""The running batch: which row decodes what, and what a step's candidates make of it.

Rows 0 … size-1 are live; the others are free. A sentence begins with one row; beams, samples and alternatives become
several when their first token is generated. A hypothesis that goes on stays in its row, and one more child of it takes
the row of a hypothesis that died, or a free one: only that is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from translane_server.backend import BoolArray, Candidates, FloatArray, Int32Array, IntArray, RowMove, StepNeeds
from translane_server.beams import continue_beams
from translane_server.decoding import greedy
from translane_server.decoding.masks import MaskTable
from translane_server.decoding.phrases import SuppressedPhrases
from translane_server.decoding.surfaces import SurfaceIndex
from translane_server.draws import draw_tokens, first_tokens
from translane_server.hypotheses import alignment_of, hypothesis_of
from translane_server.job import Job
from translane_server.request import Hypothesis
from translane_server.rows import ALWAYS, RowTable
from translane_server.search import Kind, Search
from translane_server.step import Child, RankedTokens, rank_tokens
from translane_server.vocabulary import TargetVocabulary

# Candidates that a row with rules asks for beyond those it needs, in place of banned ones.
_SPARE_CANDIDATES = 8
_WORD_START = "word start"


@dataclass(slots=True)
class Update:
    """What a step has changed: sentences that are done, and the moves that the backend has to make, in order."""

    done: list[tuple[Job, tuple[Hypothesis, ...]]] = field(default_factory=list)
    moves: list[RowMove] = field(default_factory=list)


class RunningBatch:
    """What is decoding, row by row.

    Whoever calls a method that returns moves has the backend make them, so that its rows and these stay the same.

    Args:
        rows: R, how many rows there are.
        target_capacity: most tokens of a row.
        source_capacity: most source tokens of a row.
        vocabulary: of the target.
    """

    def __init__(self, rows: int, target_capacity: int, source_capacity: int, vocabulary: TargetVocabulary) -> None:
        self._vocabulary = vocabulary
        self._table = RowTable(rows, target_capacity, source_capacity)
        self._masks = MaskTable(len(vocabulary.surfaces))
        self._index = SurfaceIndex(vocabulary.surfaces)
        self._continues_word = np.ones(len(vocabulary.surfaces), np.bool_)
        self._continues_word[self._index.starting(b" ")] = False
        self._continues_word[vocabulary.eos : vocabulary.eos + 1] = False
        self._searches: list[Search] = []  # by row
        self._intricate = 0  # searches that are not plain greedy
        self._scored = 0  # searches whose hypotheses tell their scores
        self.reserved = 0  # rows that the sentences may come to take
        self._row_numbers = np.arange(rows)

    @property
    def size(self) -> int:
        """How many rows are live."""
        return len(self._searches)

    @property
    def jobs(self) -> list[Job]:
        """What each row decodes."""
        return [search.job for search in self._searches]

    @property
    def positions(self) -> Int32Array:
        """Where to feed the next tokens: the number of tokens each row has been fed, [size]."""
        return self._table.positions[: self.size]

    @property
    def token_ids(self) -> IntArray:
        """The tokens to feed next, [size]."""
        tokens: IntArray = self._table.history[self._row_numbers[: self.size], self.positions]
        return tokens

    @property
    def needs(self) -> StepNeeds:
        """What the next step has to return."""
        if not self._intricate:
            return _BEST_SCORED_TOKEN if self._scored else _BEST_TOKEN
        table, n = self._table, self.size
        most = int(table.num_candidates[:n].max())
        logits = bool((table.positions[:n] < table.special_until[:n]).any())
        return StepNeeds(
            num_candidates=1 << (most - 1).bit_length(),  # few different numbers, for the backend's sake
            log_probs=logits or self._scored > 0 or bool((table.kind[:n] != Kind.GREEDY).any()),
            logits=logits,
            attention=bool(table.attention[:n].any()),
        )

    def add(self, jobs: Sequence[Job]) -> None:
        """Start decoding `jobs` in rows size … size + len(jobs) - 1."""
        for job in jobs:
            search = Search.begin(job, self.size, self._vocabulary, self._phrases(job))
            self._searches.append(search)
            self.reserved += job.rows
            self._intricate += not _is_plain(job)
            self._scored += job.sentence.options.scores
            self._fill_row(search, search.rows[0])

    def advance(self, candidates: Candidates) -> Update:
        """Take what a step returned: every live row gets a token, and whoever has ended leaves."""
        update = Update()
        free = self._advance_all(candidates, update) if self._intricate else self._advance_greedily(candidates, update)
        update.moves += self._remove(free)
        return update

    def drop(self, unwanted: Callable[[Job], bool]) -> list[RowMove]:
        """Give up the sentences that are `unwanted`; return the moves that takes."""
        leaving = [row for row, search in enumerate(self._searches) if unwanted(search.job)]
        for search in {id(self._searches[row]): self._searches[row] for row in leaving}.values():
            self._end(search)
        return self._remove(leaving)

    def clear(self) -> None:
        """Forget what is decoding; the batch is not used again."""
        self._searches = []

    # Rows come …

    def _phrases(self, job: Job) -> SuppressedPhrases | None:
        """What may not occur in the sentence's translation; shared by all that are decoding now."""
        phrases = job.sentence.options.suppressed_phrases
        if not phrases:
            return None
        shared = (
            search.phrases for search in self._searches if search.job.sentence.options.suppressed_phrases == phrases
        )
        return next(shared, None) or SuppressedPhrases(phrases, self._index)

    def _fill_row(self, search: Search, row: int) -> None:
        table, job, sentence = self._table, search.job, search.job.sentence
        options, forced = sentence.options, len(sentence.forced_ids)
        uncounted = forced - sentence.counted_ids
        table.history[row, 0] = self._vocabulary.decoder_start
        table.positions[row] = 0
        table.scores[row] = 0.0
        table.source_length[row] = job.source_length
        table.forced_length[row] = forced
        table.forced[row, :forced] = sentence.forced_ids
        table.uncounted[row] = uncounted
        table.limit[row] = max(uncounted + options.max_length, forced + min(options.max_length, 1))
        table.eos_from[row] = uncounted + options.min_length
        table.kind[row] = search.kind
        table.repetition_penalty[row] = options.repetition_penalty
        table.ngram_size[row] = options.no_repeat_ngram_size
        table.attention[row] = options.attention
        table.mask[row] = table.first_mask[row] = 0
        if options.suppressed_ids:
            table.mask[row] = self._masks.acquire(options.suppressed_ids, np.array(options.suppressed_ids))
        if sentence.word_follows:
            table.first_mask[row] = self._masks.acquire(_WORD_START, self._continues_word)
        if options.sampling:
            table.temperature[row] = options.sampling.temperature
            table.top_k[row] = options.sampling.top_k
            table.top_p[row] = options.sampling.top_p
            table.seed[row] = options.sampling.seed
        table.stream[row] = 0
        table.special_until[row] = _special_until(search, forced, uncounted)
        table.needed[row] = search.num_candidates
        spare = _SPARE_CANDIDATES if table.special_until[row] > forced else 0
        table.num_candidates[row] = search.num_candidates + spare

    # … and go.

    def _end(self, search: Search) -> None:
        """Give back what a sentence holds beside its rows."""
        job = search.job
        self.reserved -= job.rows
        self._intricate -= not _is_plain(job)
        self._scored -= job.sentence.options.scores
        if job.sentence.options.suppressed_ids:
            self._masks.release(job.sentence.options.suppressed_ids)
        if job.sentence.word_follows:
            self._masks.release(_WORD_START)

    def _remove(self, rows: Sequence[int]) -> list[RowMove]:
        """Free `rows` and fill the holes with the last live rows; return the moves that takes."""
        if not rows:
            return []
        leaving = set(rows)
        size = self.size - len(leaving)
        holes = sorted(row for row in leaving if row < size)
        staying = [row for row in range(size, self.size) if row not in leaving]
        for target, source in zip(holes, staying, strict=True):
            search = self._searches[target] = self._searches[source]
            search.rows[search.rows.index(source)] = target
        moves = [self._move(source, target) for target, source in zip(holes, staying, strict=True)]
        self._table.copy(staying, holes)
        del self._searches[size:]
        return moves

    def _move(self, source: int, target: int) -> RowMove:
        table = self._table
        return RowMove(source, target, int(table.positions[source]), int(table.source_length[source]))

    # A step of a batch that only has plain greedy rows.

    def _advance_greedily(self, candidates: Candidates, update: Update) -> list[int]:
        table, n = self._table, self.size
        choice = greedy.choose(candidates, table.positions[:n], table.limit[:n], self._vocabulary.eos)
        self._append(slice(n), choice.token_ids, choice.log_probs)
        if choice.log_probs is not None:
            table.scores[:n] += choice.log_probs
        free = np.flatnonzero(choice.ended | choice.at_max_length).tolist()
        for row in free:
            self._finish_row(row, update)
        return free

    def _append(self, rows: IntArray | slice, tokens: IntArray, log_probs: FloatArray | None) -> None:
        table = self._table
        positions = table.positions[rows]
        numbers = self._row_numbers[rows]
        if log_probs is not None:
            table.log_probs[numbers, positions] = log_probs
        table.history[numbers, positions + 1] = tokens
        table.positions[rows] = positions + 1

    def _finish_row(self, row: int, update: Update) -> None:
        """The hypothesis of a row that is independent of others has ended."""
        table, search = self._table, self._searches[row]
        length = int(table.positions[row])
        token = int(table.history[row, length])
        last = None if token == self._vocabulary.eos else token
        log_prob = float(table.log_probs[row, length - 1])
        search.ended.append(hypothesis_of(table, search, row, length - 1, last, log_prob, float(table.scores[row])))
        search.rows.remove(row)
        if not search.rows:
            self._end(search)
            update.done.append((search.job, search.hypotheses()))

    # A step of a batch that has other rows, too.

    def _advance_all(self, candidates: Candidates, update: Update) -> list[int]:
        table, n, eos = self._table, self.size, self._vocabulary.eos
        if candidates.attention is not None:
            self._keep_attention(candidates.attention)
        forced = table.positions[:n] < table.forced_length[:n]
        ranked = rank_tokens(candidates, forced, table, self._searches, self._masks, eos)
        grouped = [search for row, search in enumerate(self._searches) if not forced[row] and search.goes_on_in_groups]
        alone = np.flatnonzero([forced[row] or not s.goes_on_in_groups for row, s in enumerate(self._searches)])
        children, dead = self._children(ranked, dict.fromkeys(grouped), update)
        placed = self._place(children, dead, update)
        if alone.size:
            tokens, log_probs = self._next_tokens(ranked, alone, forced)
            self._append(alone, tokens, log_probs)
            generating = ~forced[alone]
            table.scores[alone[generating]] += log_probs[generating]
        if placed:
            rows = np.array([row for row, _ in placed])
            added = [child for _, child in placed]
            self._append(
                rows,
                np.array([child.token for child in added]),
                np.array([child.log_prob for child in added], np.float32),
            )
            table.scores[rows] = [child.score for child in added]
            table.stream[rows] = [child.stream for child in added]
        free = dead + self._finish_rows(update)
        self._report(free)
        return free

    def _keep_attention(self, attention: FloatArray) -> None:
        table, n = self._table, self.size
        rows = np.flatnonzero(table.attention[:n])
        longest = int(table.source_length[rows].max())
        table.attention_weights[rows, table.positions[rows], :longest] = attention[rows, :longest]

    def _next_tokens(self, ranked: RankedTokens, rows: IntArray, forced: BoolArray) -> tuple[IntArray, FloatArray]:
        """The next token of each of `rows`, which go on alone, and its log-probability."""
        table, eos = self._table, self._vocabulary.eos
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

    def _children(
        self, ranked: RankedTokens, searches: Iterable[Search], update: Update
    ) -> tuple[dict[Search, list[Child]], list[int]]:
        """What `searches` of several hypotheses go on with, and the rows of those that are done."""
        table, eos = self._table, self._vocabulary.eos
        children: dict[Search, list[Child]] = {}
        dead: list[int] = []
        beams = []
        for search in searches:
            if search.kind is Kind.BEAM:
                beams.append(search)
            else:
                children[search] = first_tokens(ranked, search, table, eos)
                search.branches = 1
                row = search.rows[0]
                table.num_candidates[row] += search.num_candidates - table.needed[row]
                table.needed[row] = search.num_candidates
        for search, going in continue_beams(ranked, beams, table, eos).items():
            if going:
                children[search] = going
            else:
                dead += search.rows
                self._end(search)
                update.done.append((search.job, search.hypotheses()))
        return children, dead

    # Where children go

    def _place(self, children: dict[Search, list[Child]], dead: list[int], update: Update) -> list[tuple[int, Child]]:
        """Give each child a row: its parent's, one whose hypothesis died, or a free one.

        Rows that are left over are added to `dead`; the copies are made in the table and added to the update.

        Returns:
            Each child and its row.
        """
        table = self._table
        placed: list[tuple[int, Child]] = []
        sources: list[int] = []
        targets: list[int] = []
        for search, ones in children.items():
            parents = {child.parent for child in ones}
            left = [row for row in reversed(search.rows) if row not in parents]
            taken: set[int] = set()
            rows = []
            for child in ones:
                row, source_length = child.parent, 0
                if row in taken:
                    if left:
                        row = left.pop()
                    else:
                        row, source_length = self.size, int(table.source_length[child.parent])
                        self._searches.append(search)
                    sources.append(child.parent)
                    targets.append(row)
                    # the parent's row has been fed one token more than its position says
                    fed = int(table.positions[child.parent]) + 1
                    update.moves.append(RowMove(child.parent, row, fed, source_length))
                taken.add(row)
                rows.append(row)
                placed.append((row, child))
            search.rows = rows
            dead += left
        table.copy(sources, targets)
        return placed

    def _finish_rows(self, update: Update) -> list[int]:
        """End the hypotheses of rows that are no beams; return the rows."""
        table, n = self._table, self.size
        rows, positions = self._row_numbers[:n], table.positions[:n]
        last = table.history[rows, positions]
        generated = positions > table.forced_length[:n]
        over = (generated & (last == self._vocabulary.eos)) | (positions >= table.limit[:n])
        free: list[int] = np.flatnonzero(over & (table.kind[:n] != Kind.BEAM)).tolist()
        for row in free:
            self._finish_row(row, update)
        return free

    # Streams

    def _report(self, free: Sequence[int]) -> None:
        """Tell whoever listens which tokens are certain by now."""
        gone = set(free)
        for row, search in enumerate(self._searches):
            listener = search.job.sentence.on_progress
            if listener is None or row in gone or row != search.rows[0]:
                continue
            length = self._agreed_length(search)
            if length > search.agreed:
                search.agreed = length
                alignment = alignment_of(self._table, row, length) if search.job.sentence.options.alignment else ()
                listener(tuple(self._table.tokens(row, length)), alignment)

    def _agreed_length(self, search: Search) -> int:
        """How many tokens the live hypotheses share with each other and with the best ended one."""
        table, first = self._table, search.rows[0]
        length = int(table.positions[first])
        if len(search.rows) > 1:
            history = table.history[search.rows, 1 : length + 1]
            length = _shared(np.flatnonzero((history != history[0]).any(axis=0)), length)
        if search.pool and search.pool.hypotheses:
            ended = np.array(search.pool.hypotheses[0].token_ids, np.int64)
            length = min(length, len(ended))
            length = _shared(np.flatnonzero(table.history[first, 1 : length + 1] != ended[:length]), length)
        return length


_BEST_TOKEN, _BEST_SCORED_TOKEN = StepNeeds(log_probs=False), StepNeeds()


def _shared(differences: npt.NDArray[np.intp], length: int) -> int:
    return int(differences[0]) if differences.size else length


def _is_plain(job: Job) -> bool:
    """Whether a sentence takes one row, and of its step nothing but the best token."""
    sentence, options = job.sentence, job.sentence.options
    return (
        options.rows == 1
        and options.sampling is None
        and not options.attention
        and sentence.on_progress is None
        and not sentence.forced_ids
        and not sentence.word_follows
        and not options.min_length
        and options.repetition_penalty == 1
        and not options.no_repeat_ngram_size
        and not options.suppressed_ids
        and not options.suppressed_phrases
    )


def _special_until(search: Search, forced: int, uncounted: int) -> int:
    """For how many tokens a row needs its logits."""
    sentence, options = search.job.sentence, search.job.sentence.options
    if (
        options.repetition_penalty != 1
        or options.no_repeat_ngram_size
        or options.suppressed_ids
        or search.phrases
        or search.requirements
        or search.kind is Kind.SAMPLE_VOCABULARY
    ):
        return ALWAYS
    return max(forced + sentence.word_follows, uncounted + options.min_length if options.min_length else 0)
