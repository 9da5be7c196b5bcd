"""The state of the rows that every decode step reads and writes, as arrays indexed by row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from translane_server.core.arrays import BoolArray, FloatArray, Int32Array, IntArray

_RECORD = np.dtype(
    [
        ("positions", np.int32),
        ("next_ids", np.int64),
        ("scores", np.float64),
        ("source_length", np.int32),
        ("limit", np.int32),
        ("stream", np.int64),
        ("greedy", np.bool_),
        ("attention", np.bool_),
    ],
    align=True,
)


class RowTable:
    """The state of R rows. A row holds up to T tokens, and its source has up to S tokens.

    The scores and tokens of beams are in their search. `history` and `attention_weights` hold beams only if rules or
    alignments need them.

    Attributes:
        history: the decoder's start, and the tokens of each row, forced and generated, [R, T + 1].
        positions: number of tokens of each row, [R]. The last token is in column `positions` of `history`, and is fed
            next, at this position.
        next_ids: the token that each row is fed next, [R].
        log_probs: natural log-probability of each token, [R, T].
        scores: sum of the log-probabilities of the generated tokens, [R].
        source_length: number of source tokens, [R].
        limit: number of tokens at which a row ends at the latest, [R].
        stream: stream of random numbers of each row, [R].
        greedy: whether a row takes the best candidate of every step, [R].
        attention: whether a row needs attention weights, [R].
    """

    def __init__(self, rows: int, target_capacity: int, source_capacity: int) -> None:
        self._capacities = target_capacity, source_capacity
        self._records = np.zeros(rows, _RECORD)  # one array, so that one copy of bytes copies a row
        self._bytes = self._records.view(np.uint8).reshape(rows, -1)
        width = target_capacity + 1
        self._firsts = np.arange(rows) * width + 1  # place of each row's first token in the flat arrays
        self._flat_history: IntArray = np.zeros(rows * width, np.int64)
        self._flat_log_probs: FloatArray = np.zeros(rows * width, np.float32)
        self.history: IntArray = self._flat_history.reshape(rows, width)
        self.positions: Int32Array = self._records["positions"]
        self.next_ids: IntArray = self._records["next_ids"]
        self.log_probs: FloatArray = self._flat_log_probs.reshape(rows, width)[:, 1:]
        self.scores = self._records["scores"]
        self.source_length: Int32Array = self._records["source_length"]
        self.limit: Int32Array = self._records["limit"]
        self.stream: IntArray = self._records["stream"]
        self.greedy: BoolArray = self._records["greedy"]
        self.attention: BoolArray = self._records["attention"]
        self._attention_weights: FloatArray | None = None

    @property
    def attention_weights(self) -> FloatArray:
        """Attention weights of each row, [R, T, S]. The first use allocates them."""
        if self._attention_weights is None:
            self._attention_weights = np.zeros((len(self.positions), *self._capacities), np.float32)
        return self._attention_weights

    def begin(self, row: int, start: int, source_length: int, limit: int, *, greedy: bool, attention: bool) -> None:
        """Begin a sentence in a row, with the decoder's start."""
        self._records[row] = (0, start, 0.0, source_length, limit, 0, greedy, attention)
        self.history[row, 0] = start

    def copy_state(self, source: int, target: int) -> None:
        """Copy the state of a row, but not its history, log-probabilities and attention weights."""
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

    def keep_attention(self, attention: FloatArray) -> None:
        """Keep the attention weights [n, S] of a step, for the rows that need them."""
        rows = self.attention[: len(attention)].nonzero()[0]
        longest = int(self.source_length[rows].max())
        self.attention_weights[rows, self.positions[rows], :longest] = attention[rows, :longest]

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy each source row to its target row. No row may be both."""
        if not sources:
            return
        source, target = np.array(sources), np.array(targets)
        length = int(self.positions[source].max())
        self._bytes[target] = self._bytes[source]
        self.history[target, : length + 1] = self.history[source, : length + 1]
        self.log_probs[target, :length] = self.log_probs[source, :length]
        if self._attention_weights is not None:
            for source_row, target_row in zip(sources, targets, strict=True):
                # The weights of this step are written already, but its tokens are not.
                steps, tokens = int(self.positions[source_row]) + 1, int(self.source_length[source_row])
                weights = self._attention_weights
                weights[target_row, :steps, :tokens] = weights[source_row, :steps, :tokens]
