"""A backend whose model is a table of random logits: one row of them for each source and tokens so far.

Like `FakeBackend` it fails where a row's memory is not what the engine believes it is, by what comes out: logits depend
on every token the row was fed. `RandomModel.logits` gives tests the same numbers.
"""

from __future__ import annotations

import zlib

import numpy as np

from translane_server.backend import BEST_TOKEN, Candidates
from translane_server.vocabulary import TargetVocabulary

DECODER_START = 0
EOS = 1


class RandomModel:
    def __init__(self, vocab_size=40, seed=0, scale=2.0, eos_bias=1.0):
        self.vocab_size, self.seed, self.scale, self.eos_bias = vocab_size, seed, scale, eos_bias
        letters = "abcdefghijklmnopqrstuvwxyz"
        surfaces = [b"", b""]
        surfaces += [(" " * (i % 3 == 0) + letters[i % 26] * (1 + i // 26)).encode() for i in range(vocab_size - 2)]
        self.vocabulary = TargetVocabulary(DECODER_START, EOS, surfaces)
        self._cache = {}

    def logits(self, source, fed):
        """float32 [V], for source ids and the tokens fed, the decoder's start included."""
        key = (tuple(source), tuple(fed))
        if key not in self._cache:
            generator = np.random.default_rng([self.seed, zlib.crc32(repr(key).encode())])
            logits = generator.normal(scale=self.scale, size=self.vocab_size).astype(np.float32)
            logits[EOS] += self.eos_bias
            self._cache[key] = logits
        return self._cache[key]

    def log_probs(self, source, fed):
        logits = self.logits(source, fed).astype(np.float64)
        return logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()

    def attention(self, source, fed):
        """float32 [S]."""
        generator = np.random.default_rng([self.seed, 1, zlib.crc32(repr((tuple(source), tuple(fed))).encode())])
        return generator.dirichlet(np.full(len(source), 0.5)).astype(np.float32)


class RandomBackend:
    has_attention = True

    def __init__(self, model, rows=8, source_capacity=16, target_capacity=32):
        self.model = model
        self.rows, self.source_capacity, self.target_capacity = rows, source_capacity, target_capacity
        self.sources, self.fed = [None] * rows, [None] * rows
        self.encoded = []
        self.closed = False
        self.steps, self.moves = [], []
        self.steps_at_once = 1
        self.calls_ahead = 0

    def encode_ahead(self, sources):
        self.encoded = [list(source) for source in sources]
        return len(sources)

    def enter(self, sources, rows):
        for source, row in zip(sources, rows, strict=True):
            assert row < self.rows
            self.sources[row], self.fed[row] = self.encoded[source], []

    def decode_step(self, token_ids, positions, needs=BEST_TOKEN):
        n = len(token_ids)
        assert 1 <= n <= self.rows
        self.steps.append(n)
        logits = np.zeros((n, self.model.vocab_size), np.float32)
        log_probs = np.zeros((n, self.model.vocab_size), np.float32)
        attention = np.zeros((n, self.source_capacity), np.float32)
        for row in range(n):
            position = int(positions[row])
            assert position < self.target_capacity
            assert len(self.fed[row]) >= position
            self.fed[row] = [*self.fed[row][:position], int(token_ids[row])]
            logits[row] = self.model.logits(self.sources[row], self.fed[row])
            log_probs[row] = self.model.log_probs(self.sources[row], self.fed[row])
            attention[row, : len(self.sources[row])] = self.model.attention(self.sources[row], self.fed[row])
        for row in range(n, self.rows):
            self.sources[row] = self.fed[row] = None  # a backend may write over rows behind those of a step
        ids = np.argsort(-logits, axis=1, kind="stable")[:, : needs.num_candidates]
        return Candidates(
            ids,
            np.take_along_axis(log_probs, ids, axis=1) if needs.log_probs else None,
            logits if needs.logits else None,
            attention if needs.attention else None,
        )

    def decode_ahead(self, token_ids, positions, steps):
        assert 1 <= steps <= self.steps_at_once
        self.calls_ahead += 1
        tokens = []
        for step in range(steps):
            token_ids = self.decode_step(token_ids, positions + step).token_ids[:, 0]
            tokens.append(token_ids)
        return np.array(tokens)

    def move_rows(self, moves):
        self.moves.append(list(moves))
        for move in moves:
            if move.source_length:
                self.sources[move.target] = self.sources[move.source][: move.source_length]
            assert self.sources[move.target] == self.sources[move.source], "the row decodes another sentence"
            own, fed = self.fed[move.target] or [], self.fed[move.source]
            assert own[: move.start] == fed[: move.start], "the rows were fed other tokens"
            self.fed[move.target] = fed[: move.target_length]

    def close(self):
        self.closed = True
