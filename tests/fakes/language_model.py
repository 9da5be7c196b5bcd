"""A backend whose model is a table of random logits: one line for each source and the tokens so far.

Logits depend on every token of a row. So wrong output shows that a row's memory differs from what the caller believes.
`RandomModel.logits` gives tests the same numbers.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from translane_server.core.arrays import FloatArray, Int32Array, IntArray
from translane_server.engine.sequence import TargetVocabulary
from translane_server.runtime.backend import BEST_TOKEN, Candidates, RowMove, StepNeeds, Stops, never

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


class RandomBackend:
    has_attention = True

    def __init__(self, model: RandomModel, rows: int = 8, source_capacity: int = 16, target_capacity: int = 32) -> None:
        self.model = model
        self.rows, self.source_capacity, self.target_capacity = rows, source_capacity, target_capacity
        self.sources: list[list[int] | None] = [None] * rows
        self.fed: list[list[int] | None] = [None] * rows
        self.encoded: list[list[int]] = []
        self.closed = False
        self.steps: list[int] = []
        self.moves: list[list[RowMove]] = []
        self.steps_at_once = 1
        self.stops_between_steps = False
        self.calls_ahead = 0

    def encode_ahead(self, sources: Sequence[Sequence[int]]) -> int:
        self.encoded = [list(source) for source in sources]
        return len(sources)

    def enter(self, sources: Sequence[int], rows: Sequence[int], allowed: Sequence[Sequence[int] | None] = ()) -> None:
        for source, row in zip(sources, rows, strict=True):
            assert row < self.rows
            self.sources[row], self.fed[row] = self.encoded[source], []

    def decode_step(self, token_ids: IntArray, positions: Int32Array, needs: StepNeeds = BEST_TOKEN) -> Candidates:
        n = len(token_ids)
        assert 1 <= n <= self.rows
        self.steps.append(n)
        logits = np.zeros((n, self.model.vocab_size), np.float32)
        log_probs = np.zeros((n, self.model.vocab_size), np.float32)
        attention = np.zeros((n, self.source_capacity), np.float32)
        for row in range(n):
            position = int(positions[row])
            assert position < self.target_capacity
            source, fed = self.sources[row], self.fed[row]
            assert source is not None, "the row has no sentence"
            assert fed is not None, "the row has no sentence"
            assert len(fed) >= position
            self.fed[row] = fed = [*fed[:position], int(token_ids[row])]
            logits[row] = self.model.logits(source, fed)
            log_probs[row] = self.model.log_probs(source, fed)
            attention[row, : len(source)] = self.model.attention(source, fed)
        for row in range(n, self.rows):
            self.sources[row] = self.fed[row] = None  # a backend may write over all rows after the rows of a step
        ids = np.argsort(-logits, axis=1, kind="stable")[:, : needs.num_candidates]
        return Candidates(
            ids,
            np.take_along_axis(log_probs, ids, axis=1) if needs.log_probs else None,
            logits if needs.logits else None,
            attention if needs.attention else None,
        )

    def decode_ahead(self, token_ids: IntArray, positions: Int32Array, steps: int, stops: Stops = never) -> IntArray:
        assert 1 <= steps <= self.steps_at_once
        self.calls_ahead += 1
        tokens = []
        for step in range(steps):
            token_ids = self.decode_step(token_ids, positions + np.int32(step)).token_ids[:, 0]
            tokens.append(token_ids)
            if self.stops_between_steps and stops(token_ids.tolist()):
                break
        return np.array(tokens)

    def move_rows(self, moves: Sequence[RowMove]) -> None:
        self.moves.append(list(moves))
        for move in moves:
            source, fed = self.sources[move.source], self.fed[move.source]
            assert source is not None, "the row has no sentence"
            assert fed is not None, "the row has no sentence"
            if move.source_length:
                self.sources[move.target] = source[: move.source_length]
            assert self.sources[move.target] == source, "the row decodes another sentence"
            own = self.fed[move.target] or []
            assert own[: move.start] == fed[: move.start], "the rows were fed other tokens"
            self.fed[move.target] = fed[: move.target_length]

    def close(self) -> None:
        self.closed = True
