"""A backend without a model: it checks that it is used rightly, and translates by a rule tests can state.

A source [a, b, c, eos] translates to [a + 1000, b + 1000, c + 1000, eos], each token at log-probability
-(position + 1) / 8; all others are much less probable, lower ids more than higher ones. Attention is on the source
token that is copied, with weight 3/4, and on the end of the sentence. Every row remembers its source and the tokens it
was fed, and a step fails where the row's memory is not what the engine believes it is: a move forgotten, done twice or
too short is found at once.
"""

from __future__ import annotations

import threading

import numpy as np

from translane_server.backend import BEST_TOKEN, Candidates
from translane_server.vocabulary import TargetVocabulary

DECODER_START = 2
EOS = 3
OFFSET = 1000
VOCAB_SIZE = 2000
VOCABULARY = TargetVocabulary(DECODER_START, EOS, [b" %d" % token for token in range(VOCAB_SIZE)])


class FakeBackend:
    def __init__(self, rows=4, source_capacity=32, target_capacity=32):
        self.rows = rows
        self.has_attention = True
        self.steps_at_once = 1
        self.ahead = False  # whether rows may go on behind the end of their sentences
        self.source_capacity = source_capacity
        self.target_capacity = target_capacity
        self.sources = [None] * rows
        self.fed = [None] * rows
        self.encoded = []
        self.encode_limit = 100  # sentences that are encoded at once
        self.log = []  # ("encode", B) | ("step", n) | ("move", source, target)
        self.closed = False
        self.fail_at_step = None
        self.gate = None  # when set, every step waits for a permit
        self.step_started = threading.Semaphore(0)

    def hold(self):
        """Let no step run until `release`."""
        self.gate = threading.Semaphore(0)

    def release(self, steps=None):
        gate, count = self.gate, steps
        if steps is None:
            self.gate, count = None, 1_000_000
        gate.release(count)

    def encode_ahead(self, sources):
        assert sources
        assert all(1 <= len(source) <= self.source_capacity for source in sources)
        self.encoded = [list(source) for source in sources[: self.encode_limit]]
        self.log.append(("encode", len(self.encoded)))
        return len(self.encoded)

    def enter(self, sources, rows):
        for source, row in zip(sources, rows, strict=True):
            assert row < self.rows
            self.sources[row], self.fed[row] = self.encoded[source], []
            self.encoded[source] = None  # none enters twice

    def decode_step(self, token_ids, positions, needs=BEST_TOKEN):
        if self.gate is not None:
            self.step_started.release()
            self.gate.acquire()
        n = len(token_ids)
        assert 1 <= n <= self.rows
        if self.fail_at_step is not None and sum(e[0] == "step" for e in self.log) == self.fail_at_step:
            raise RuntimeError("the device fell off the bus")
        logits = np.full((n, VOCAB_SIZE), -50, np.float32) - np.arange(VOCAB_SIZE, dtype=np.float32) / 100
        attention = np.zeros((n, self.source_capacity), np.float32)
        for row in range(n):
            position = int(positions[row])
            assert position < self.target_capacity
            assert len(self.fed[row]) >= position, "the row's memory is shorter than its position"
            self.fed[row] = [*self.fed[row][:position], int(token_ids[row])]
            source = self.sources[row]
            translation = [EOS if token == EOS else token + OFFSET for token in source]
            assert self.ahead or position < len(source), "the row goes on behind the end of its sentence"
            translation += [EOS] * (position + 1 - len(source))
            expected = [DECODER_START, *translation[:position]]
            assert self.fed[row] == expected, f"row {row} holds {self.fed[row]}, not {expected}"
            logits[row, translation[position]] = -(position + 1) / 8
            attention[row, len(source) - 1] += 0.25
            attention[row, min(position, len(source) - 1)] += 0.75
        for row in range(n, self.rows):
            self.sources[row] = self.fed[row] = None  # a backend may write over rows behind those of a step
        self.log.append(("step", n))
        ids = np.argsort(-logits, axis=1, kind="stable")[:, : needs.num_candidates]
        return Candidates(
            ids,
            np.take_along_axis(logits, ids, axis=1) if needs.log_probs else None,
            logits if needs.logits else None,
            attention if needs.attention else None,
        )

    def decode_ahead(self, token_ids, positions, steps):
        assert 1 <= steps <= self.steps_at_once
        tokens = []
        for step in range(steps):
            self.ahead = step > 0
            token_ids = self.decode_step(token_ids, positions + step).token_ids[:, 0]
            tokens.append(token_ids)
        self.ahead = False
        return np.array(tokens)

    def move_rows(self, moves):
        for move in moves:
            assert move.source != move.target
            if move.source_length:
                self.sources[move.target] = self.sources[move.source][: move.source_length]
            assert self.sources[move.target] == self.sources[move.source], "the row decodes another sentence"
            own, fed = self.fed[move.target] or [], self.fed[move.source]
            assert own[: move.start] == fed[: move.start], "the rows were fed other tokens"
            self.fed[move.target] = fed[: move.target_length]
            self.log.append(("move", move.source, move.target))

    def close(self):
        assert not self.closed, "closed twice"
        self.closed = True

    @property
    def step_rows(self):
        return [entry[1] for entry in self.log if entry[0] == "step"]
