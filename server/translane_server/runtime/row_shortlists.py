"""The shortlists of the rows, joined for a step.

A step multiplies with the tokens that any of its rows may use. Each row has its own list: every other token of the step
is -inf for that row. So the best tokens of a row, and their probabilities, do not depend on the other rows.
"""

from __future__ import annotations

import math
import operator

import numpy as np

from translane_server.core.arrays import FloatArray, IntArray

# The number of tokens of a step is a multiple of this. So steps have few shapes, each of which is bound once.
_GRANULE = 256
# ONNX Runtime adds up a product of few columns in another order than a product of many. The columns are divided among
# the threads.
_COLUMNS_OF_A_THREAD = 128
# Exponentials of logits are rounded to multiples of 2^-32. So a float64 holds a sum of a million of them exactly, in
# whatever order they are added.
_UNITS = float(1 << 32)


class RowShortlists:
    """The list of each of R rows; None for a row that may use every token.

    Args:
        rows: number of rows R.
        vocab_size: number of target tokens V.
        threads: threads of one operator.

    Attributes:
        tokens: the tokens of the step, ascending; after `used` of them comes padding that no row may use, [U].
        outside: 0 for the tokens of a row's own list, -inf for all others, [n, U].
        used: number of tokens without the padding.
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
