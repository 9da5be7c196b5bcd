"""Translane's engine on a bundle, as something that decodes lists of token ids."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workload import Load

from translane_server.backend import Device
from translane_server.bundle import load_bundle
from translane_server.engine import Engine
from translane_server.options import DecodingOptions
from translane_server.ort import OrtBackend
from translane_server.request import Request, Sentence
from translane_server.sessions import Sessions
from translane_server.vocabulary import TargetVocabulary

NEVER = -1  # an end-of-sentence id no model predicts
ENCODE_TOKENS = 2048  # the server's default


class TranslaneDecoder:
    """Engines that share a list of sentences, each taking the next as it finishes one. Close it.

    Args:
        model: folder of the bundle.
        replicas: how many engines there are.
        threads: of ONNX Runtime in each.
        rows: of each engine: the sentences of a batch, times the beams.
        source_tokens: most tokens of a source.
        target_tokens: most tokens of a translation.
        ends: whether the model ends sentences, or only their lengths do.
        device: what decodes.
    """

    def __init__(
        self,
        model: Path,
        *,
        replicas: int,
        threads: int,
        rows: int,
        source_tokens: int,
        target_tokens: int,
        ends: bool,
        device: Device = "cpu",
    ) -> None:
        bundle = load_bundle(Path(model))
        limits, ids = bundle.manifest.limits, bundle.manifest.special_ids
        self._batch = 1
        self._engines = []
        sessions = Sessions(bundle, device=device, threads=threads)
        for number in range(replicas):
            if number and threads > 1:  # sessions are shared, and so are their threads
                sessions = Sessions(bundle, device=device, threads=threads)
            backend = OrtBackend(
                sessions,
                rows=rows,
                source_capacity=min(source_tokens, limits.source_tokens),
                target_capacity=min(target_tokens, limits.target_tokens),
                encode_tokens=ENCODE_TOKENS,
            )
            backend.warm_up()
            engine = Engine(
                backend,
                vocabulary=TargetVocabulary(ids.decoder_start, ids.eos if ends else NEVER),
                waiting_limit=2 * rows,
                encode_tokens=ENCODE_TOKENS,
            )
            engine.start()
            self._engines.append(engine)

    def prepare(self, load: Load) -> list[Sentence]:
        """What `decode` takes."""
        self._batch = load.batch
        lengths = load.lengths or [load.max_length] * len(load.sources)
        options = {
            length: DecodingOptions(max_length=length, beam_size=load.beam_size, early_stopping=load.beam_size > 1)
            for length in set(lengths)
        }
        return [Sentence(source, options[length]) for source, length in zip(load.sources, lengths, strict=True)]

    def decode(self, sentences: list[Sentence]) -> list[Any]:
        """Translate; each engine holds twice a batch at most, so that none takes what another could begin."""
        results: list[Any] = [None] * len(sentences)
        unanswered = threading.Semaphore(0)
        failures: queue.SimpleQueue[Exception] = queue.SimpleQueue()
        numbers = iter(range(len(sentences)))
        lock = threading.Lock()

        def next_number(numbers: Iterator[int] = numbers) -> int | None:
            with lock:
                return next(numbers, None)

        def submit(engine: Engine) -> None:
            if (number := next_number()) is not None:
                engine.submit(Request([sentences[number]], lambda outcome: answer(engine, number, outcome)))

        def answer(engine: Engine, number: int, outcome: Any) -> None:
            if isinstance(outcome, Exception):
                failures.put(outcome)
            else:
                results[number] = outcome[0]
                submit(engine)
            unanswered.release()

        for _ in range(2 * self._batch):
            for engine in self._engines:
                submit(engine)
        for _ in sentences:
            unanswered.acquire()
            if not failures.empty():
                raise failures.get()
        return results

    def token_ids(self, results: list[Any]) -> list[tuple[int, ...]]:
        """The best translations, in the order of the sources, without their ends."""
        return [result.hypotheses[0].token_ids for result in results]

    def close(self) -> None:
        for engine in self._engines:
            engine.stop()
