"""A real engine on a real bundle, that decodes lists of sentences: together, one by one, or as they arrive."""

from __future__ import annotations

import queue
import random
import time
from collections.abc import Callable, Sequence

from translane_server.bundle import Bundle
from translane_server.engine import Engine
from translane_server.runtime.graph_backend import GraphBackend
from translane_server.runtime.ort import OrtBackend
from translane_server.request import Hypothesis, Request, Sentence
from translane_server.runtime.sessions import Sessions
from translane_server.text.tokenizer import load_tokenizer
from translane_server.vocabulary import TargetVocabulary

_PATIENCE = 240  # seconds for a sentence


class EngineDriver:
    """Decodes on an engine of its own; use it in a `with` statement, which stops the engine.

    Args:
        bundle: what to decode with.
        rows: of its backend.
        threads: of ONNX Runtime.
        source_capacity: most source tokens; the bundle's limit if that is less.
        target_capacity: most target tokens; the bundle's limit if that is less.
        decoder_start: the id the decoder is first fed; the bundle's where it is not given.
        open_backend: makes the backend, of a bundle and its sizes; by default that of the CPU.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        rows: int = 24,
        threads: int = 1,
        source_capacity: int = 64,
        target_capacity: int = 64,
        decoder_start: int | None = None,
        open_backend: Callable[..., GraphBackend] | None = None,
    ) -> None:
        limits, ids = bundle.manifest.limits, bundle.manifest.special_ids
        self.tokenizer = load_tokenizer(bundle)
        self.vocabulary = TargetVocabulary(
            decoder_start=ids.decoder_start if decoder_start is None else decoder_start,
            eos=ids.eos,
            surfaces=self.tokenizer.target_surfaces,
        )
        open_backend = open_backend or (lambda bundle, **sizes: OrtBackend(Sessions(bundle, threads=threads), **sizes))
        self.backend = open_backend(
            bundle,
            rows=rows,
            source_capacity=min(source_capacity, limits.source_tokens),
            target_capacity=min(target_capacity, limits.target_tokens),
        )
        self.step_rows: list[int] = []  # of each decoder step so far
        self._count_steps(self.backend)
        self.engine = Engine(self.backend, vocabulary=self.vocabulary, encode_tokens=512)

    def __enter__(self) -> EngineDriver:
        self.engine.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.engine.stop()

    def together(self, sentences: Sequence[Sentence]) -> list[tuple[Hypothesis, ...]]:
        """Hypotheses of each sentence, best first; all sentences are one request."""
        answers: queue.SimpleQueue[object] = queue.SimpleQueue()
        self.engine.submit(Request(sentences, answers.put))
        return [result.hypotheses for result in _checked(answers.get(timeout=_PATIENCE))]

    def one_by_one(self, sentences: Sequence[Sentence]) -> list[tuple[Hypothesis, ...]]:
        """Decode each sentence alone in the batch."""
        return [self.together([sentence])[0] for sentence in sentences]

    def arriving(self, sentences: Sequence[Sentence], seed: int) -> list[tuple[Hypothesis, ...]]:
        """Decode each sentence as a request of its own, in random order and at random moments."""
        shuffle = random.Random(seed)
        answers: queue.SimpleQueue[tuple[int, object]] = queue.SimpleQueue()
        for number in shuffle.sample(range(len(sentences)), len(sentences)):
            self.engine.submit(
                Request(
                    [sentences[number]],
                    lambda outcome, number=number: answers.put((number, outcome)),
                    priority=shuffle.randrange(3),
                )
            )
            time.sleep(shuffle.expovariate(2000))  # half a millisecond on average: a fraction of a step
        outcomes = dict(answers.get(timeout=_PATIENCE) for _ in sentences)
        return [_checked(outcomes[number])[0].hypotheses for number in range(len(sentences))]

    def _count_steps(self, backend: GraphBackend) -> None:
        step = backend.decode_step

        def counted_step(token_ids, *arguments, **keywords):
            self.step_rows.append(len(token_ids))
            return step(token_ids, *arguments, **keywords)

        backend.decode_step = counted_step  # type: ignore[method-assign]


def _checked(outcome):
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
