"""A backend that tells where the time of its caller goes, and the engine around it."""

from __future__ import annotations

import queue
import time
from dataclasses import dataclass

from translane_server.bundle import Bundle
from translane_server.engine import Engine
from translane_server.runtime.ort import OrtBackend
from translane_server.request import Request, Sentence
from translane_server.runtime.sessions import Sessions
from translane_server.text.tokenizer import load_tokenizer
from translane_server.vocabulary import TargetVocabulary

NEVER = -1  # an end-of-sentence id no model predicts


@dataclass
class Times:
    """Seconds by what they were spent on, and how much was done. `total` is what the caller waited."""

    total: float = 0.0
    encode: float = 0.0  # and to give rows to what is encoded
    step: float = 0.0
    move: float = 0.0
    steps: int = 0
    rows: int = 0  # summed over the steps
    reordered_rows: int = 0  # copied within a sentence
    moved_rows: int = 0  # copied because a row was left, or to begin beams

    @property
    def engine(self) -> float:
        """What is spent outside the backend."""
        return self.total - self.encode - self.step - self.move


class MeasuredEngine:
    """An engine on a bundle whose backend's calls are timed. Close it.

    Args:
        bundle: what to decode with.
        rows: of the backend.
        threads: of ONNX Runtime.
        ends: whether sentences end when the model ends them, or only at their max_length.
    """

    def __init__(self, bundle: Bundle, *, rows: int, threads: int, ends: bool) -> None:
        limits, ids = bundle.manifest.limits, bundle.manifest.special_ids
        self.tokenizer = load_tokenizer(bundle)
        backend = OrtBackend(
            Sessions(bundle, threads=threads),
            rows=rows,
            source_capacity=min(64, limits.source_tokens),
            target_capacity=min(96, limits.target_tokens),
        )
        backend.warm_up()
        self._time_calls(backend)
        self.has_attention = backend.has_attention
        self.vocabulary = TargetVocabulary(
            ids.decoder_start, ids.eos if ends else NEVER, self.tokenizer.target_surfaces
        )
        self.times = Times()
        self._engine = Engine(backend, vocabulary=self.vocabulary, encode_tokens=2048)
        self._engine.start()

    def close(self) -> None:
        self._engine.stop()

    def decode(self, sentences: list[Sentence]) -> Times:
        """Decode `sentences` as one request."""
        self.times = times = Times()
        answers: queue.SimpleQueue = queue.SimpleQueue()
        started = time.perf_counter()
        self._engine.submit(Request(sentences, answers.put))
        outcome = answers.get()
        times.total = time.perf_counter() - started
        if isinstance(outcome, Exception):
            raise outcome
        self.results = outcome
        return times

    def _time_calls(self, backend: OrtBackend) -> None:
        encode, enter, step, move = backend.encode_ahead, backend.enter, backend.decode_step, backend.move_rows

        def timed_encode(sources):
            started = time.perf_counter()
            encoded = encode(sources)
            self.times.encode += time.perf_counter() - started
            return encoded

        def timed_enter(sources, rows):
            started = time.perf_counter()
            enter(sources, rows)
            self.times.encode += time.perf_counter() - started

        def timed_step(token_ids, *arguments, **keywords):
            started = time.perf_counter()
            candidates = step(token_ids, *arguments, **keywords)
            seconds = time.perf_counter() - started
            self.times.step += seconds
            self.times.steps += 1
            self.times.rows += len(token_ids)
            return candidates

        def timed_move(moves):
            started = time.perf_counter()
            move(moves)
            self.times.move += time.perf_counter() - started
            within = sum(not row_move.source_length for row_move in moves)
            self.times.reordered_rows += within
            self.times.moved_rows += len(moves) - within

        backend.encode_ahead, backend.enter = timed_encode, timed_enter
        backend.decode_step, backend.move_rows = timed_step, timed_move
