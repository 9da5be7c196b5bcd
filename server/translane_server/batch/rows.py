"""What each row of the running batch is decoding: properties that are arrays, all indexed by row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from translane_server.backend import BoolArray, FloatArray, Int32Array, IntArray

ALWAYS = np.iinfo(np.int32).max

_RECORD = np.dtype(
    [
        ("positions", np.int32),
        ("next_ids", np.int64),
        ("scores", np.float64),
        ("source_length", np.int32),
        ("forced_length", np.int32),
        ("uncounted", np.int32),
        ("limit", np.int32),
        ("eos_from", np.int32),
        ("special_until", np.int32),
        ("num_candidates", np.int32),
        ("needed", np.int32),
        ("kind", np.int8),
        ("repetition_penalty", np.float32),
        ("ngram_size", np.int32),
        ("mask", np.int32),
        ("first_mask", np.int32),
        ("temperature", np.float64),
        ("top_k", np.int32),
        ("top_p", np.float64),
        ("seed", np.uint64),
        ("stream", np.int64),
        ("attention", np.bool_),
    ],
    align=True,
)


# A row that is decoded greedily, without rules.
_FRESH = np.zeros(1, _RECORD)
for _field in ("num_candidates", "needed", "repetition_penalty", "temperature", "top_p"):
    _FRESH[_field] = 1
_FRESH_BYTES = _FRESH.view(np.uint8)


class RowTable:
    """The state of R rows that hold up to T tokens each, of S source tokens at most.

    Of rows of plain beams it has `positions`, `next_ids` and what they are set to; history and scores are in their
    search.

    Attributes:
        history: what each row is fed, [R, T + 1]: the decoder's start, then forced and generated tokens.
        positions: how many tokens of a row are decided, and so where it is fed next: column of `history`.
        next_ids: what it is fed next.
        log_probs: natural log-probability of each decided token, [R, T].
        scores: the sum over the generated tokens of what the search ranks by.
        forced: tokens that are decided beforehand, [R, T]; `forced_length` of them.
        uncounted: how many of them do not count as generated.
        limit: how many tokens are decided when a row ends at the latest.
        eos_from: number of decided tokens from which the sentence may end.
        special_until: number of decided tokens up to which the plain candidates are not enough: the row needs logits.
        num_candidates: how many candidates of a step the row asks for.
        attention: whether the row needs attention weights; kept in `attention_weights` [R, T, S].
    """

    def __init__(self, rows: int, target_capacity: int, source_capacity: int) -> None:
        self._capacities = target_capacity, source_capacity
        self._records = np.repeat(_FRESH, rows)  # one array, so that a row is copied at once: as bytes
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
        self.forced: IntArray = np.zeros((rows, target_capacity), np.int64)
        self.forced_length: Int32Array = self._records["forced_length"]
        self.uncounted: Int32Array = self._records["uncounted"]
        self.limit: Int32Array = self._records["limit"]
        self.eos_from: Int32Array = self._records["eos_from"]
        self.special_until: Int32Array = self._records["special_until"]
        self.num_candidates: Int32Array = self._records["num_candidates"]
        self.needed: Int32Array = self._records["needed"]
        self.kind = self._records["kind"]
        self.repetition_penalty: FloatArray = self._records["repetition_penalty"]
        self.ngram_size: Int32Array = self._records["ngram_size"]
        self.mask: Int32Array = self._records["mask"]
        self.first_mask: Int32Array = self._records["first_mask"]
        self.temperature = self._records["temperature"]
        self.top_k: Int32Array = self._records["top_k"]
        self.top_p = self._records["top_p"]
        self.seed = self._records["seed"]
        self.stream: IntArray = self._records["stream"]
        self.attention: BoolArray = self._records["attention"]
        self._attention_weights: FloatArray | None = None

    @property
    def attention_weights(self) -> FloatArray:
        """[R, T, S]; there from the first use on."""
        if self._attention_weights is None:
            self._attention_weights = np.zeros((len(self.positions), *self._capacities), np.float32)
        return self._attention_weights

    def reset(self, row: int, start: int, source_length: int) -> None:
        """Begin a row with the decoder's start; it has no rules, and no limit yet."""
        self._bytes[row] = _FRESH_BYTES
        self.next_ids[row] = self.history[row, 0] = start
        self.source_length[row] = source_length

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

    def tokens(self, row: int, length: int) -> list[int]:
        """The first `length` decided tokens of a row."""
        tokens: list[int] = self.history[row, 1 : length + 1].tolist()
        return tokens

    def keep_attention(self, attention: FloatArray) -> None:
        """Keep a step's attention weights [n, S] of those of the first n rows that need them."""
        rows = np.flatnonzero(self.attention[: len(attention)])
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
        if (forced := int(self.forced_length[source].max())) > int(self.positions[source].min()):
            self.forced[target, :forced] = self.forced[source, :forced]
        if self._attention_weights is not None:
            for source_row, target_row in zip(sources, targets, strict=True):
                # a step's weights are written before its tokens are decided
                steps, tokens = int(self.positions[source_row]) + 1, int(self.source_length[source_row])
                weights = self._attention_weights
                weights[target_row, :steps, :tokens] = weights[source_row, :steps, :tokens]
