"""What a step reads and writes of every row, as arrays that are indexed by row. The rest of a row is its search's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from translane_server.arrays import BoolArray, FloatArray, Int32Array, IntArray

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
    """The state of R rows that hold up to T tokens each, of S source tokens at most.

    Beams have their scores and tokens in their search. They keep `history` and `attention_weights` here where rules or
    alignments need them.

    Attributes:
        history: what each row is fed, [R, T + 1]: the decoder's start, then forced and generated tokens.
        positions: how many tokens of a row are decided, and so where it is fed next: column of `history`.
        next_ids: what it is fed next.
        log_probs: natural log-probability of each decided token, [R, T].
        scores: the sum of the generated tokens' log-probabilities.
        source_length: source tokens of its sentence.
        limit: how many tokens are decided when a row ends at the latest.
        stream: the number of its random numbers.
        greedy: whether the best candidate of a step is its next token, whatever it is.
        attention: whether the row needs attention weights; kept in `attention_weights` [R, T, S].
    """

    def __init__(self, rows: int, target_capacity: int, source_capacity: int) -> None:
        self._capacities = target_capacity, source_capacity
        self._records = np.zeros(rows, _RECORD)  # one array, so that a row is copied at once: as bytes
        self._bytes = self._records.view(np.uint8).reshape(rows, -1)
        width = target_capacity + 1
        self._firsts = np.arange(rows) * width + 1  # where the tokens of each row begin
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
        """[R, T, S]; there from the first use on."""
        if self._attention_weights is None:
            self._attention_weights = np.zeros((len(self.positions), *self._capacities), np.float32)
        return self._attention_weights

    def begin(self, row: int, start: int, source_length: int, limit: int, *, greedy: bool, attention: bool) -> None:
        """Begin a row with the decoder's start."""
        self._records[row] = (0, start, 0.0, source_length, limit, 0, greedy, attention)
        self.history[row, 0] = start

    def copy_settings(self, source: int, target: int) -> None:
        """Make a row what another one is, but for its tokens and what is known of each."""
        self._bytes[target] = self._bytes[source]

    def append(self, rows: IntArray | slice, tokens: IntArray, log_probs: FloatArray | None) -> None:
        """Add a token to each of `rows`, and its log-probability where it is known."""
        places = self._firsts[rows] + self.positions[rows]
        self._flat_history[places] = tokens
        if log_probs is not None:
            self._flat_log_probs[places] = log_probs
        self.next_ids[rows] = tokens
        self.positions[rows] += 1

    def tokens(self, row: int, start: int, end: int) -> list[int]:
        """The decided tokens of a row, from number `start` up to `end`."""
        tokens: list[int] = self.history[row, start + 1 : end + 1].tolist()
        return tokens

    def keep_attention(self, attention: FloatArray) -> None:
        """Keep a step's attention weights [n, S] of those of the first n rows that need them."""
        rows = self.attention[: len(attention)].nonzero()[0]
        longest = int(self.source_length[rows].max())
        self.attention_weights[rows, self.positions[rows], :longest] = attention[rows, :longest]

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Make each target row what its source row is. No row may be a source and a target."""
        if not sources:
            return
        source, target = np.array(sources), np.array(targets)
        length = int(self.positions[source].max())
        self._bytes[target] = self._bytes[source]
        self.history[target, : length + 1] = self.history[source, : length + 1]
        self.log_probs[target, :length] = self.log_probs[source, :length]
        if self._attention_weights is not None:
            for source_row, target_row in zip(sources, targets, strict=True):
                # a step's weights are written before its tokens are decided
                steps, tokens = int(self.positions[source_row]) + 1, int(self.source_length[source_row])
                weights = self._attention_weights
                weights[target_row, :steps, :tokens] = weights[source_row, :steps, :tokens]
