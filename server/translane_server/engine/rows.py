"""The state of the rows that every decode step reads and writes, as arrays indexed by row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from translane_server.core.arrays import BoolArray, FloatArray, Int32Array, IntArray
from translane_server.runtime.backend import RowMove

_RECORD = np.dtype(
    [
        ("positions", np.int32),
        ("next_ids", np.int64),
        ("scores", np.float64),
        ("source_length", np.int32),
        ("limit", np.int32),
        ("stream", np.int64),
        ("greedy", np.bool_),
    ],
    align=True,
)


class RowTable:
    """The state of R rows. A row holds up to T tokens.

    The scores, tokens and rows of beams are in their search. `history` holds beams only if rules need them.
    """

    def __init__(self, rows: int, target_capacity: int) -> None:
        self._records = np.zeros(rows, _RECORD)  # one array, so that one copy of bytes copies a row
        self._bytes = self._records.view(np.uint8).reshape(rows, -1)
        width = target_capacity + 1
        self._firsts = np.arange(rows) * width + 1  # place of each row's first token in the flat arrays
        self._flat_history: IntArray = np.zeros(rows * width, np.int64)
        self._flat_log_probs: FloatArray = np.zeros(rows * width, np.float32)
        # the decoder's start, and the tokens of each row, forced and generated, [R, T + 1]
        self.history: IntArray = self._flat_history.reshape(rows, width)
        # number of tokens of each row, [R]. The last token is in column `positions` of `history`, and is fed next, at
        # this position.
        self.positions: Int32Array = self._records["positions"]
        self.next_ids: IntArray = self._records["next_ids"]  # the token that each row is fed next, [R]
        # natural log-probability of each token, [R, T]
        self.log_probs: FloatArray = self._flat_log_probs.reshape(rows, width)[:, 1:]
        self.scores = self._records["scores"]  # sum of the log-probabilities of the generated tokens, [R]
        self.source_length: Int32Array = self._records["source_length"]  # number of source tokens, [R]
        self.limit: Int32Array = self._records["limit"]  # number of tokens at which a row ends at the latest, [R]
        self.stream: IntArray = self._records["stream"]  # stream of random numbers of each row, [R]
        self.greedy: BoolArray = self._records["greedy"]  # whether a row takes the best candidate of every step, [R]
        # the row in which each token of a row was or will be chosen, [R, T]
        self.chosen_in: Int32Array = np.zeros((rows, target_capacity), np.int32)

    def begin(self, row: int, start: int, source_length: int, limit: int, *, greedy: bool) -> None:
        """Begin a sentence in a row, with the decoder's start."""
        self._records[row] = (0, start, 0.0, source_length, limit, 0, greedy)
        self.history[row, 0] = start
        self.chosen_in[row] = row

    def copy_state(self, source: int, target: int) -> None:
        """Copy the state of a row, but not its history and log-probabilities."""
        self._bytes[target] = self._bytes[source]

    def append(self, rows: IntArray | slice, tokens: IntArray, log_probs: FloatArray | None) -> None:
        """Add a token to each of `rows`, and the token's log-probability if it is known."""
        places = self._firsts[rows] + self.positions[rows]
        self._flat_history[places] = tokens
        if log_probs is not None:
            self._flat_log_probs[places] = log_probs
        self.next_ids[rows] = tokens
        self.positions[rows] += 1

    def extend(self, tokens: IntArray, counts: IntArray) -> None:
        """Add several tokens to each of the first n rows: the first `counts` [n] of its column of `tokens`, [steps, n].

        Each row has room for the whole column.
        """
        steps, n = tokens.shape
        places = self._firsts[:n] + self.positions[:n]
        self._flat_history[places + np.arange(steps)[:, None]] = tokens  # what follows a row's last token is never read
        self.next_ids[:n] = tokens[counts - 1, np.arange(n)]
        self.positions[:n] += counts

    def tokens(self, row: int, start: int, end: int) -> list[int]:
        """The tokens `start` … `end` - 1 of a row."""
        tokens: list[int] = self.history[row, start + 1 : end + 1].tolist()
        return tokens

    def copy(self, moves: Sequence[RowMove]) -> None:
        """Copy each source row to its target row. No row is a target twice, or both source and target."""
        if not moves:
            return
        source, target = (np.array([move[end] for move in moves]) for end in (0, 1))
        length = int(self.positions[source].max())
        self._bytes[target] = self._bytes[source]
        self.history[target, : length + 1] = self.history[source, : length + 1]
        self.log_probs[target, :length] = self.log_probs[source, :length]
        for move in moves:
            self.chosen_in[move.target] = move.target
            self.chosen_in[move.target, : move.target_length] = self.chosen_in[move.source, : move.target_length]
