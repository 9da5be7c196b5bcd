"""A backend without a model. It checks that it is used correctly, and translates by a rule that tests can state.

A source [a, b, c, eos] translates to [a + 1000, b + 1000, c + 1000, eos]. Each of these tokens has the log-probability
-(position + 1) / 8. All other tokens are much less probable; of these, lower ids are more probable. Attention is on the
copied source token, with weight 3/4, and on the end of the sentence. Every row remembers its source and its tokens. A
step fails if a row's memory differs from what the caller believes. So a move that is forgotten, done twice or too short
is found at once.
"""

import threading
from collections.abc import Sequence

import numpy as np

from translane_server.core.arrays import FloatArray, Int32Array, IntArray
from translane_server.engine.sequence import TargetVocabulary
from translane_server.runtime.backend import BEST_TOKEN, Candidates, RowMove, StepNeeds, Stops, never

DECODER_START = 2
EOS = 3
OFFSET = 1000
VOCAB_SIZE = 2000
VOCABULARY = TargetVocabulary(DECODER_START, EOS, [b" %d" % token for token in range(VOCAB_SIZE)])
_IMPROBABLE: FloatArray = np.float32(-50) - np.arange(VOCAB_SIZE, dtype=np.float32) / np.float32(100)


class FakeBackend:
    """Translates by the rule. Another model overrides `predict`.

    Attributes:
        log: ("encode", sentences), ("step", rows) and ("move", source, target).
    """

    vocab_size = VOCAB_SIZE
    has_attention = True

    def __init__(self, rows: int = 4, source_capacity: int = 32, target_capacity: int = 32) -> None:
        self.rows = rows
        self.source_capacity = source_capacity
        self.target_capacity = target_capacity
        self.sources: list[list[int] | None] = [None] * rows
        self.fed: list[list[int] | None] = [None] * rows
        self.encoded: list[list[int] | None] = []
        self.encode_limit = 100  # sentences that are encoded at once
        self.steps_at_once = 1
        self.stops_between_steps = False
        self.takes_others = False  # whether rows may be fed other tokens than the rule's, as beams feed them
        self.log: list[tuple[str, int] | tuple[str, int, int]] = []
        self.calls_ahead = 0  # how often several steps were asked for
        self.closed = False
        self.fail_at_step: int | None = None
        self.gate: threading.Semaphore | None = None  # when set, every step waits for a permit
        self.step_started = threading.Semaphore(0)
        self._kept: dict[int, list[tuple[list[int], FloatArray]]] = {}  # sources and attention of each step's rows
        self._ahead = False  # whether rows may go on behind the end of their sentences

    def hold(self) -> None:
        """Let no step run until `release`."""
        self.gate = threading.Semaphore(0)

    def release(self, steps: int | None = None) -> None:
        assert self.gate is not None, "no step is held"
        gate = self.gate
        if steps is None:
            self.gate, steps = None, 1_000_000
        gate.release(steps)

    def encode_ahead(self, sources: Sequence[Sequence[int]]) -> int:
        assert sources
        assert all(1 <= len(source) <= self.source_capacity for source in sources)
        self.encoded = [list(source) for source in sources[: self.encode_limit]]
        self.log.append(("encode", len(self.encoded)))
        return len(self.encoded)

    def enter(self, sources: Sequence[int], rows: Sequence[int], allowed: Sequence[Sequence[int] | None] = ()) -> None:
        for source, row in zip(sources, rows, strict=True):
            assert row < self.rows
            self.sources[row], self.fed[row] = self.encoded[source], []
            self.encoded[source] = None  # none enters twice

    def predict(self, source: list[int], fed: list[int]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return logits and log-probabilities of the next token, and attention over the source."""
        position = len(fed) - 1
        translation = [EOS if token == EOS else token + OFFSET for token in source]
        assert self._ahead or self.takes_others or position < len(source), (
            "the row goes on behind the end of its sentence"
        )
        translation += [EOS] * (position + 1 - len(source))
        expected = [DECODER_START, *translation[:position]]
        assert self.takes_others or fed == expected, f"a row holds {fed}, not {expected}"
        logits = _IMPROBABLE.copy()
        logits[translation[position]] = -(position + 1) / 8
        attention = np.zeros(len(source), np.float32)
        attention[-1] += 0.25
        attention[min(position, len(source) - 1)] += 0.75
        return logits, logits, attention

    def decode_step(
        self, token_ids: IntArray, positions: Int32Array, needs: StepNeeds = BEST_TOKEN, keep: int | None = None
    ) -> Candidates:
        if self.gate is not None:
            self.step_started.release()
            self.gate.acquire()
        n = len(token_ids)
        assert 1 <= n <= self.rows
        if self.fail_at_step is not None and len(self.step_rows) == self.fail_at_step:
            raise RuntimeError("the device fell off the bus")
        logits = np.zeros((n, self.vocab_size), np.float32)
        log_probs = np.zeros((n, self.vocab_size), np.float32)
        kept = []
        for row in range(n):
            position = int(positions[row])
            assert position < self.target_capacity
            source, fed = self._sentence(row)
            assert len(fed) >= position, "the row's memory is shorter than its position"
            self.fed[row] = fed = [*fed[:position], int(token_ids[row])]
            logits[row], log_probs[row], attention = self.predict(source, fed)
            kept.append((source, attention))
        if keep is not None:
            self._kept[keep] = kept
            self._kept.pop(keep - self.target_capacity, None)
        for row in range(n, self.rows):
            self.sources[row] = self.fed[row] = None  # a backend may write over all rows after the rows of a step
        self.log.append(("step", n))
        ids = np.argsort(-logits, axis=1, kind="stable")[:, : needs.num_candidates]
        return Candidates(
            ids,
            np.take_along_axis(log_probs, ids, axis=1) if needs.log_probs else None,
            logits if needs.logits else None,
        )

    def align(self, row: int, first: int, rows: Sequence[int]) -> FloatArray:
        source, _ = self._sentence(row)
        weights = np.zeros((len(rows), self.source_capacity), np.float32)
        for number, (kept_in, line) in enumerate(zip(rows, weights, strict=True), start=first):
            kept_source, attention = self._kept[number][kept_in]
            assert kept_source == source, "the row chose a token of another sentence"
            line[: len(source)] = attention
        return weights

    def decode_ahead(
        self,
        token_ids: IntArray,
        positions: Int32Array,
        steps: int,
        eos: int | None = None,
        stops: Stops = never,
        keep: int | None = None,
    ) -> IntArray:
        assert 1 <= steps <= self.steps_at_once
        self.calls_ahead += 1
        tokens = []
        for step in range(steps):
            self._ahead = step > 0
            number = None if keep is None else keep + step
            token_ids = self.decode_step(token_ids, positions + np.int32(step), BEST_TOKEN, number).token_ids[:, 0]
            tokens.append(token_ids)
            if self.stops_between_steps and (eos in token_ids or stops()):
                break
        self._ahead = False
        return np.array(tokens)

    def move_rows(self, moves: Sequence[RowMove]) -> None:
        targets = {move.target for move in moves}
        assert len(targets) == len(moves), "a row is a target twice"
        assert targets.isdisjoint(move.source for move in moves), "a row is both source and target"
        for move in moves:
            source, fed = self._sentence(move.source)
            if move.source_length:
                self.sources[move.target] = source[: move.source_length]
            assert self.sources[move.target] == source, "the row decodes another sentence"
            own = self.fed[move.target] or []
            assert own[: move.start] == fed[: move.start], "the rows were fed other tokens"
            self.fed[move.target] = fed[: move.target_length]
            self.log.append(("move", move.source, move.target))

    def close(self) -> None:
        assert not self.closed, "closed twice"
        self.closed = True

    @property
    def step_rows(self) -> list[int]:
        """The rows of each step."""
        return [entry[1] for entry in self.log if entry[0] == "step"]

    def _sentence(self, row: int) -> tuple[list[int], list[int]]:
        """Return the source of a row, and the tokens that it was fed."""
        source, fed = self.sources[row], self.fed[row]
        assert source is not None, "the row has no sentence"
        assert fed is not None, "the row has no sentence"
        return source, fed
