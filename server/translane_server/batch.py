"""The running batch: what each row is decoding, as one array for each property, active rows first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from translane_server.backend import Candidates, Int32Array, IntArray, RowMove
from translane_server.decoding import greedy
from translane_server.job import Job
from translane_server.request import FinishReason, Hypothesis


class RunningBatch:
    """Rows 0 … size-1 are decoding; the others are free.

    Whoever calls `remove` has the returned moves done by the backend, so that its rows and these stay the same.
    """

    def __init__(self, rows: int, target_capacity: int, *, decoder_start: int, eos: int) -> None:
        self._decoder_start = decoder_start
        self._eos = eos
        self.size = 0
        self.jobs: list[Job] = []
        self._token_ids: IntArray = np.zeros(rows, np.int64)  # to be fed next
        self._positions: Int32Array = np.zeros(rows, np.int32)  # tokens generated, and so the position to feed at
        self._max_length: Int32Array = np.zeros(rows, np.int32)
        self._source_length: Int32Array = np.zeros(rows, np.int32)
        self._scores = np.zeros(rows, np.float64)
        self._generated: IntArray = np.zeros((rows, target_capacity), np.int64)  # [rows, T]
        self._row_numbers = np.arange(rows)

    @property
    def token_ids(self) -> IntArray:
        """The tokens to feed next, [size]."""
        return self._token_ids[: self.size]

    @property
    def positions(self) -> Int32Array:
        """Where to feed them: the number of tokens each row has been fed, [size]."""
        return self._positions[: self.size]

    def add(self, jobs: Sequence[Job]) -> None:
        """Start decoding `jobs` in rows size … size + len(jobs) - 1."""
        added = slice(self.size, self.size + len(jobs))
        self._token_ids[added] = self._decoder_start
        self._positions[added] = 0
        self._scores[added] = 0.0
        self._max_length[added] = [job.sentence.max_length for job in jobs]
        self._source_length[added] = [job.source_length for job in jobs]
        self.jobs.extend(jobs)
        self.size = added.stop

    def advance(self, candidates: Candidates) -> dict[int, Hypothesis]:
        """Take the candidates of a step; return the hypotheses of the rows that ended with it."""
        n = self.size
        choice = greedy.choose(candidates, self._positions[:n], self._max_length[:n], self._eos)
        self._generated[self._row_numbers[:n], self._positions[:n]] = choice.token_ids
        self._scores[:n] += choice.log_probs
        self._token_ids[:n] = choice.token_ids
        self._positions[:n] += 1
        return {
            row: self._hypothesis(row, ended=bool(choice.ended[row]))
            for row in np.flatnonzero(choice.ended | choice.at_max_length).tolist()
        }

    def remove(self, rows: Sequence[int]) -> list[RowMove]:
        """Free `rows` and fill the holes with the last active rows; return the moves that takes."""
        leaving = set(rows)
        size = self.size - len(leaving)
        holes = sorted(row for row in leaving if row < size)
        staying = (row for row in range(size, self.size) if row not in leaving)
        moves = [self._move(source, target) for target, source in zip(holes, staying, strict=True)]
        del self.jobs[size:]
        self.size = size
        return moves

    def _move(self, source: int, target: int) -> RowMove:
        length = int(self._positions[source])
        for column in (self._token_ids, self._positions, self._max_length, self._source_length, self._scores):
            column[target] = column[source]
        self._generated[target, :length] = self._generated[source, :length]
        self.jobs[target] = self.jobs[source]
        return RowMove(source, target, target_length=length, source_length=int(self._source_length[source]))

    def _hypothesis(self, row: int, *, ended: bool) -> Hypothesis:
        length = int(self._positions[row]) - ended  # without the end-of-sentence token
        return Hypothesis(
            token_ids=tuple(self._generated[row, :length].tolist()),
            score=float(self._scores[row]),
            finish_reason=FinishReason.END_OF_SENTENCE if ended else FinishReason.MAX_LENGTH,
        )
