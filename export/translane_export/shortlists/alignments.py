"""Which target tokens a source token is translated to: IBM model 1 (Brown et al. 1993, https://aclanthology.org/J93-2003).

The model gives t(target | source) for each pair of tokens that occur in a pair of sentences. Every target token comes
from one of the source tokens of its sentence, or from none: the empty token, of its own id. Expectation maximisation
finds the probabilities from the text alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from translane_server.core.arrays import Int32Array, IntArray

Floats = npt.NDArray[np.float64]

_CELLS_OF_A_CHUNK = 1 << 22


class TokenPair(NamedTuple):
    """The ids of a sentence and of its translation."""

    source: Sequence[int]
    target: Sequence[int]


@dataclass(frozen=True)
class Translations:
    """t(target | source) of each pair of tokens that occurs, ordered by source.

    Attributes:
        source: the source token of each pair, [P]. `empty` is the empty token.
        target: the target token of each pair, [P].
        probability: t(target | source), [P].
        empty: the id of the empty token.
    """

    source: IntArray
    target: IntArray
    probability: Floats
    empty: int

    def best(self, count: int, least: float) -> dict[int, list[int]]:
        """Return the `count` most probable targets of each source token, of at least the probability `least`."""
        order = np.lexsort((self.target, -self.probability, self.source))
        source, target = self.source[order], self.target[order]
        rank = np.arange(len(source)) - np.searchsorted(source, source)
        kept = (rank < count) & (self.probability[order] >= least) & (source != self.empty)
        found: dict[int, list[int]] = {}
        for one, other in zip(source[kept].tolist(), target[kept].tolist(), strict=True):
            found.setdefault(one, []).append(other)
        return found


def align(pairs: Sequence[TokenPair], source_size: int, target_size: int, iterations: int) -> Translations:
    """Find the probabilities by `iterations` of expectation maximization.

    Args:
        pairs: the text; both sides of each pair have tokens.
        source_size: number of source ids.
        target_size: number of target ids.
        iterations: how often each pair is read, 1 or more.
    """
    parts = _parts(pairs)
    keys: IntArray = np.empty(0, np.int64)
    for part in parts:
        keys = np.union1d(keys, _Chunk.of(part, source_size, target_size).keys)
    source, target = np.divmod(keys, target_size)
    probability = np.ones(len(keys))
    for _ in range(iterations):
        counts = np.zeros(len(keys))
        for part in parts:  # made anew each time, because all chunks together may be larger than the memory
            chunk = _Chunk.of(part, source_size, target_size)
            place = np.searchsorted(keys, chunk.keys)
            given = probability[place]
            totals = np.bincount(chunk.words, given)
            counts += np.bincount(place, given / totals[chunk.words], len(keys))
        probability = counts / np.bincount(source, counts)[source]
    return Translations(source, target, probability, source_size)


@dataclass(frozen=True)
class _Chunk:
    """Every pair of tokens of some sentences: its key, and the number of the target token in the chunk, both [C]."""

    keys: IntArray
    words: Int32Array

    @classmethod
    def of(cls, pairs: Sequence[TokenPair], source_size: int, target_size: int) -> _Chunk:
        keys: list[IntArray] = []
        words: list[Int32Array] = []
        first = 0
        for pair in pairs:
            source, target = np.array([*pair.source, source_size]), np.array(pair.target)
            keys.append((source[:, None] * target_size + target).ravel())
            words.append(np.tile(np.arange(first, first + len(target), dtype=np.int32), len(source)))
            first += len(target)
        return cls(np.concatenate(keys), np.concatenate(words))


def _parts(pairs: Sequence[TokenPair]) -> list[Sequence[TokenPair]]:
    """Divide the text into parts of some millions of pairs of tokens."""
    parts, start, cells = [], 0, 0
    for number, pair in enumerate(pairs):
        cells += (len(pair.source) + 1) * len(pair.target)
        if cells >= _CELLS_OF_A_CHUNK:
            parts.append(pairs[start : number + 1])
            start, cells = number + 1, 0
    return [*parts, pairs[start:]] if start < len(pairs) else parts
