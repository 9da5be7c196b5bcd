"""Decodes lists of sentences with a bundle, as a worker does: together, one by one, or as they arrive."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from translane_server.bundle.bundle import Bundle
from translane_server.core.arrays import IntArray
from translane_server.engine import offline
from translane_server.engine.loop import EngineLoop, ServerGoneError
from translane_server.engine.sequence import (
    EngineInput,
    EngineOutput,
    Hypothesis,
    Sentence,
    SentenceResult,
    TargetVocabulary,
)
from translane_server.engine.sequence import Sequence as EngineSequence
from translane_server.runtime.backend import Candidates
from translane_server.runtime.graph_backend import GraphBackend
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions
from translane_server.text.tokenizer import load_tokenizer

_ARRIVALS = 0.3  # sentences for each step, on average


class BundleDecoder:
    """Decodes with a bundle; use it in a `with` statement.

    Args:
        bundle: the bundle.
        rows: rows of the backend.
        threads: threads of ONNX Runtime.
        source_capacity: maximum source tokens; the bundle's limit if that is less.
        target_capacity: maximum target tokens; the bundle's limit if that is less.
        decoder_start: the first id that the decoder is fed; by default the bundle's.
        open_backend: makes the backend from a bundle and its sizes; by default the CPU backend.
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
            encode_tokens=512,
        )
        self.step_rows: list[int] = []  # of each decoder step so far
        self._count_steps(self.backend)

    def __enter__(self) -> BundleDecoder:
        return self

    def __exit__(self, *exception: object) -> None:
        self.backend.close()

    def together(self, sentences: Sequence[Sentence]) -> list[tuple[Hypothesis, ...]]:
        """Decode all sentences as one request; return the hypotheses of each sentence, best first."""
        return [result.hypotheses for result in offline.decode(self.backend, self.vocabulary, sentences)]

    def one_by_one(self, sentences: Sequence[Sentence]) -> list[tuple[Hypothesis, ...]]:
        """Decode each sentence alone in the batch."""
        return [self.together([sentence])[0] for sentence in sentences]

    def arriving(self, sentences: Sequence[Sentence], seed: int) -> list[tuple[Hypothesis, ...]]:
        """Decode sentences that arrive in random order, with random priorities, between random steps."""
        arriving = _Arriving(sentences, random.Random(seed))
        assert EngineLoop(self.backend, arriving, self.vocabulary).run(), "the loop has failed"
        assert not arriving.failed
        return [arriving.results[number].hypotheses for number in range(len(sentences))]

    def _count_steps(self, backend: GraphBackend) -> None:
        step = backend.decode_step

        def counted_step(token_ids: IntArray, *arguments: Any, **keywords: Any) -> Candidates:
            self.step_rows.append(len(token_ids))
            return step(token_ids, *arguments, **keywords)

        backend.decode_step = counted_step  # type: ignore[method-assign]


class _Arriving:
    """Sends one sentence after the other, as `random` has it. Implements `loop.ServerLink`."""

    def __init__(self, sentences: Sequence[Sentence], random: random.Random) -> None:
        self._random = random
        self._coming = [
            EngineSequence(number, random.randrange(3), 0.0, False, sentence)
            for number, sentence in random.sample(list(enumerate(sentences)), len(sentences))
        ]
        self._left = len(sentences)
        self.results: dict[int, SentenceResult] = {}
        self.failed: list[int] = []

    def has_arrivals(self) -> bool:
        return bool(self._coming) and self._random.random() < _ARRIVALS

    def inputs(self, *, wait: bool) -> list[EngineInput]:
        if not self._left:
            raise ServerGoneError
        if self._coming and (wait or self.has_arrivals()):
            return [EngineInput([self._coming.pop()], [])]
        return []

    def put(self, output: EngineOutput) -> None:
        self.results.update(output.ended)
        self.failed += output.failed
        self._left -= len(output.ended) + len(output.failed)
