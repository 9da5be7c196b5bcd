"""Backends that tell where the time of their callers goes, and the engine around them."""

from __future__ import annotations

import queue
import time
from dataclasses import dataclass

from translane_server.bundle import Bundle
from translane_server.engine import Engine
from translane_server.ort import OrtBackend
from translane_server.request import Request, Sentence
from translane_server.sessions import Sessions
from translane_server.tokenizer import load_tokenizer
from translane_server.vocabulary import TargetVocabulary

NEVER = -1  # an end-of-sentence id no model predicts


@dataclass
class Times:
    """Seconds by what they were spent on, summed over replicas, and how much was done.

    `total` is what the caller waited, and `cpu` what all threads of the process computed meanwhile.
    """

    total: float = 0.0
    cpu: float = 0.0
    encode: float = 0.0
    step: float = 0.0
    move: float = 0.0
    steps: int = 0
    rows: int = 0  # summed over the steps
    reordered_rows: int = 0  # copied within a sentence
    moved_rows: int = 0  # copied because a row was left, or to begin beams

    @property
    def engine(self) -> float:
        """What one replica spends outside its backend."""
        return self.total - self.encode - self.step - self.move


class MeasuredEngine:
    """An engine on a bundle whose backends' calls are timed. Close it.

    Args:
        bundle: what to decode with.
        rows: of each backend.
        threads: of ONNX Runtime.
        ends: whether sentences end when the model ends them, or only at their max_length.
        replicas: how many backends there are.
    """

    def __init__(self, bundle: Bundle, *, rows: int, threads: int, ends: bool, replicas: int = 1) -> None:
        limits, ids = bundle.manifest.limits, bundle.manifest.special_ids
        self.tokenizer = load_tokenizer(bundle)
        sessions = Sessions(bundle, threads=threads)
        backends = []
        for _ in range(replicas):
            backend = OrtBackend(
                sessions,
                rows=rows,
                source_capacity=min(64, limits.source_tokens),
                target_capacity=min(96, limits.target_tokens),
            )
            backend.warm_up()
            self._time_calls(backend)
            backends.append(backend)
        self.has_attention = backends[0].has_attention
        self.vocabulary = TargetVocabulary(
            ids.decoder_start, ids.eos if ends else NEVER, self.tokenizer.target_surfaces
        )
        self.times = Times()
        self._engine = Engine(*backends, vocabulary=self.vocabulary, waiting_limit=1_000_000, encode_tokens=2048)
        self._engine.start()

    def close(self) -> None:
        self._engine.stop()

    def decode(self, sentences: list[Sentence]) -> Times:
        """Decode `sentences` as one request."""
        self.times = times = Times()
        answers: queue.SimpleQueue = queue.SimpleQueue()
        cpu, started = time.process_time(), time.perf_counter()
        self._engine.submit(Request(sentences, answers.put))
        outcome = answers.get()
        times.total, times.cpu = time.perf_counter() - started, time.process_time() - cpu
        if isinstance(outcome, Exception):
            raise outcome
        self.results = outcome
        return times

    def _time_calls(self, backend: OrtBackend) -> None:
        encode, step, move = backend.encode, backend.decode_step, backend.move_rows

        def timed_encode(*arguments, **keywords):
            started = time.perf_counter()
            encode(*arguments, **keywords)
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

        backend.encode, backend.decode_step, backend.move_rows = timed_encode, timed_step, timed_move
