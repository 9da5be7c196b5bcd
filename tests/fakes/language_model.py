"""A backend whose model is a table of random logits: one line for each source and the tokens so far.

Logits depend on every token of a row. So wrong output shows that a row's memory differs from what the caller believes.
`RandomModel.logits` gives tests the same numbers.
"""

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fakes.backend import FakeBackend
from translane_server.core.arrays import FloatArray
from translane_server.engine.sequence import TargetVocabulary
from translane_server.runtime.backend import RowMove

DECODER_START = 0
EOS = 1


class RandomModel:
    def __init__(self, vocab_size: int = 40, seed: int = 0, scale: float = 2.0, eos_bias: float = 1.0) -> None:
        self.vocab_size, self.seed, self.scale, self.eos_bias = vocab_size, seed, scale, eos_bias
        letters = "abcdefghijklmnopqrstuvwxyz"
        surfaces = [b"", b""]
        surfaces += [(" " * (i % 3 == 0) + letters[i % 26] * (1 + i // 26)).encode() for i in range(vocab_size - 2)]
        self.vocabulary = TargetVocabulary(DECODER_START, EOS, surfaces)
        self._cache: dict[tuple[tuple[int, ...], tuple[int, ...]], FloatArray] = {}
        self.predicted: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[FloatArray, FloatArray, FloatArray]] = {}

    def logits(self, source: Sequence[int], fed: Sequence[int]) -> FloatArray:
        """float32 [V], for source ids and the tokens fed, the decoder's start included."""
        key = (tuple(source), tuple(fed))
        if key not in self._cache:
            generator = np.random.default_rng([self.seed, zlib.crc32(repr(key).encode())])
            logits = generator.normal(scale=self.scale, size=self.vocab_size).astype(np.float32)
            logits[EOS] += self.eos_bias
            self._cache[key] = logits
        return self._cache[key]

    def log_probs(self, source: Sequence[int], fed: Sequence[int]) -> npt.NDArray[np.float64]:
        logits = self.logits(source, fed).astype(np.float64)
        log_probs: npt.NDArray[np.float64] = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
        return log_probs

    def attention(self, source: Sequence[int], fed: Sequence[int]) -> FloatArray:
        """float32 [S]."""
        generator = np.random.default_rng([self.seed, 1, zlib.crc32(repr((tuple(source), tuple(fed))).encode())])
        return generator.dirichlet(np.full(len(source), 0.5)).astype(np.float32)


class RandomBackend(FakeBackend):
    def __init__(self, model: RandomModel, rows: int = 8, source_capacity: int = 16, target_capacity: int = 32) -> None:
        super().__init__(rows, source_capacity, target_capacity)
        self.model = model
        self.vocab_size = model.vocab_size
        self.moves: list[list[RowMove]] = []

    def predict(self, source: list[int], fed: list[int]) -> tuple[FloatArray, FloatArray, FloatArray]:
        key = (tuple(source), tuple(fed))
        if key not in self.model.predicted:
            log_probs = self.model.log_probs(source, fed).astype(np.float32)
            self.model.predicted[key] = self.model.logits(source, fed), log_probs, self.model.attention(source, fed)
        return self.model.predicted[key]

    def move_rows(self, moves: Sequence[RowMove]) -> None:
        self.moves.append(list(moves))
        super().move_rows(moves)
