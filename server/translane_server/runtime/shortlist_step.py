"""Decoder steps over a shortlist of the vocabulary.

A step multiplies with the tokens that any of its rows may use. Each row has its own list: every other token of the step
is -inf for that row. So the best tokens of a row, and their probabilities, do not depend on the other rows.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from translane_server.bundle.shortlist import Shortlist
from translane_server.core.arrays import FloatArray, IntArray
from translane_server.runtime.backend import BEST_TOKEN_ALONE, Candidates, RowMove, StepNeeds
from translane_server.runtime.buffers import bind_host

# The number of tokens of a step is a multiple of this. So steps have few shapes, each of which is bound once.
_GRANULE = 256
# ONNX Runtime adds up a product of few columns in another order than a product of many. The columns are divided among
# the threads.
_COLUMNS_OF_A_THREAD = 128
# Exponentials of logits are rounded to multiples of 2^-32. So a float64 holds a sum of a million of them exactly, in
# whatever order they are added.
_UNITS = float(1 << 32)


class RowShortlists:
    """The list of each of R rows; None for a row that may use every token of the V that there are.

    Attributes:
        tokens: the tokens of the step, ascending; after `used` of them comes padding: tokens that no row may use, [U].
        outside: 0 for the tokens of a row's own list, -inf for all others, [n, U].
    """

    def __init__(self, rows: int, vocab_size: int, threads: int) -> None:
        self._lists: list[IntArray | None] = [None] * rows
        self._least = _COLUMNS_OF_A_THREAD * threads
        self._joined: list[IntArray | None] = []  # the lists of the last join
        self._place: IntArray = np.zeros(vocab_size, np.int64)  # where each token is in `tokens`
        self._present = np.zeros(vocab_size, np.bool_)
        self.tokens: IntArray = np.zeros(0, np.int64)
        self.outside: FloatArray = np.zeros((0, 0), np.float32)
        self.used = 0

    def set(self, row: int, tokens: IntArray | None) -> None:
        """Give a row its list, which is ascending."""
        self._lists[row] = tokens

    def move(self, source: int, target: int) -> None:
        """Give row `target` the list of row `source`."""
        self._lists[target] = self._lists[source]

    def limited(self, n: int) -> list[int]:
        """Return which of the first n rows have a list."""
        return [row for row, tokens in enumerate(self._lists[:n]) if tokens is not None]

    def join(self, n: int, least: int) -> bool:
        """Join the lists of the first n rows to at least so many tokens. Return whether anything has changed.

        A row without a list gets one token, because its results come from elsewhere.
        """
        lists = self._lists[:n]
        same = len(lists) == len(self._joined) and all(map(operator.is_, lists, self._joined))
        if same and least <= len(self.tokens):
            return False
        self._joined = lists
        present = self._present
        present.fill(False)
        for tokens in {id(tokens): tokens for tokens in lists}.values():
            present[0 if tokens is None else tokens] = True
        joined = np.flatnonzero(present)
        self.used = len(joined)
        self._place[joined] = np.arange(self.used)
        size = _GRANULE * math.ceil(max(self.used, self._least, least) / _GRANULE)
        self.tokens = np.zeros(size, np.int64)
        self.tokens[: self.used] = joined
        # A step with more candidates than tokens takes some of the padding: each must be a token of its own.
        unused = np.flatnonzero(~present)[: size - self.used]
        self.tokens[self.used : self.used + len(unused)] = unused
        self.outside = np.full((n, size), -np.inf, np.float32)
        for row, own in enumerate(lists):
            self.outside[row, self._place[0 if own is None else own]] = 0
        return True


def log_normalisers(logits: FloatArray) -> FloatArray:
    """Return the log of the sum of the exponentials of each row's logits [n, U]: [n].

    Tokens of -inf change no bit of the result, and neither does the order of the tokens.
    """
    best = logits.max(axis=1)
    exponentials = np.exp(logits - best[:, None]).astype(np.float64)
    sums = np.rint(exponentials * _UNITS).sum(axis=1)
    logs = [value + math.log(total / _UNITS) for value, total in zip(best.tolist(), sums.tolist(), strict=True)]
    return np.array(logs, np.float32)


_MOST_BINDINGS = 64
_MOST_BYTES = 1 << 26  # of what is bound


@dataclass(frozen=True, slots=True)
class _Binding:
    """A bound step over n rows and U tokens, and its inputs and outputs."""

    run: Callable[[], None]
    tokens: IntArray  # [U]
    outside: FloatArray  # [n, U]
    places: IntArray  # [n, K]
    logits: FloatArray  # [n, U]


@dataclass(eq=False)
class ShortlistStep:
    """Runs the step over shortlists, for the rows that have one."""

    session: Any
    bound_run: Callable[[Any, Any], Callable[[], None]]  # `Sessions.bound_run`
    shortlist: Shortlist
    _: KW_ONLY
    rows: int
    vocab_size: int
    special: Sequence[int]  # tokens that every row may use
    threads: int
    bind_rows: Callable[[Any, int], None]  # binds what a step over n rows has in common with the plain step

    def __post_init__(self) -> None:
        self._lists = RowShortlists(self.rows, self.vocab_size, self.threads)
        self._bindings: dict[tuple[int, int, StepNeeds], _Binding] = {}
        self._bytes = 0  # of the bindings' inputs and outputs
        self._written: _Binding | None = None  # whose inputs are of the last join
        self._logits: FloatArray = np.zeros((0, self.vocab_size), np.float32)

    def enter(self, row: int, source_ids: Sequence[int], allowed: Sequence[int] | None) -> None:
        """Begin a sentence in a row: with the shortlist of its source and these tokens, or with every token."""
        tokens = None
        if allowed is not None:
            tokens = self.shortlist.tokens(source_ids, (*self.special, *allowed))
        self._lists.set(row, tokens)

    def move_rows(self, moves: Sequence[RowMove]) -> None:
        """Give each target row the list of its source row."""
        for move in moves:
            self._lists.move(move.source, move.target)

    def limited(self, n: int) -> list[int]:
        """Return which of the first n rows have a list."""
        return self._lists.limited(n)

    def run(self, n: int, needs: StepNeeds) -> Candidates:
        """Run the step over n rows, whose inputs are written. Only the results of rows with a list mean anything."""
        bound, tokens = self._bound(n, needs), self._lists.tokens
        bound.run()
        log_probs = None
        if needs.log_probs:
            chosen = np.take_along_axis(bound.logits, bound.places, axis=1)
            log_probs = chosen - log_normalisers(bound.logits)[:, None]
        return Candidates(tokens[bound.places], log_probs, self._whole(n, bound.logits) if needs.logits else None)

    def best_tokens(self, n: int) -> Callable[[], list[int]]:
        """Return a function that runs the step and returns the best token of each row, for n rows that all have a list.

        The function holds as long as these rows stay. As in `StepBuffers.write_next`, little of NumPy is used.
        """
        bound = self._bound(n, BEST_TOKEN_ALONE)
        tokens = bound.tokens.data

        def best() -> list[int]:
            bound.run()
            return [tokens[place] for (place,) in bound.places.tolist()]

        return best

    def _bound(self, n: int, needs: StepNeeds) -> _Binding:
        """Return the step over n rows, with their lists as inputs."""
        changed = self._lists.join(n, needs.num_candidates)
        bound = self._binding(n, needs)
        if changed or bound is not self._written:
            bound.tokens[:], bound.outside[:] = self._lists.tokens, self._lists.outside
            self._written = bound
        return bound

    def clear(self) -> None:
        """Forget the bindings."""
        self._bindings.clear()
        self._bytes = 0
        self._written = None

    def _binding(self, n: int, needs: StepNeeds) -> _Binding:
        key = n, len(self._lists.tokens), needs
        if key not in self._bindings:
            size = n * key[1] * 2 * np.float32().itemsize
            if len(self._bindings) >= _MOST_BINDINGS or self._bytes + size > _MOST_BYTES:
                self.clear()
            self._bytes += size
            self._bindings[key] = self._bind(n, len(self._lists.tokens), needs)
        return self._bindings[key]

    def _bind(self, n: int, size: int, needs: StepNeeds) -> _Binding:
        binding = self.session.io_binding()
        bound = _Binding(
            self.bound_run(self.session, binding),
            np.zeros(size, np.int64),
            np.zeros((n, size), np.float32),
            np.zeros((n, needs.num_candidates), np.int64),
            np.zeros((n, size), np.float32),
        )
        inputs, outputs = binding.bind_input, binding.bind_output
        bind_host(inputs, "shortlist", bound.tokens, bound.tokens.shape)
        bind_host(inputs, "outside", bound.outside, bound.outside.shape)
        bind_host(outputs, "candidate_places", bound.places, bound.places.shape)
        bind_host(outputs, "logits", bound.logits, bound.logits.shape)
        self.bind_rows(binding, n)
        return bound

    def _whole(self, n: int, logits: FloatArray) -> FloatArray:
        """Return the logits of the whole vocabulary [n, V]: -inf outside of the lists."""
        if len(self._logits) < n:
            self._logits = np.zeros((n, self.vocab_size), np.float32)
        whole = self._logits[:n]
        whole.fill(-np.inf)
        used = self._lists.used
        whole[:, self._lists.tokens[:used]] = logits[:, :used]
        return whole
