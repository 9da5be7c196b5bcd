"""Decodes lists of sentences with a bundle, as a server does: together, one by one, or as they arrive."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

from translane_server.bundle.bundle import Bundle
from translane_server.core.arrays import IntArray
from translane_server.engine.sequence import Hypothesis, Sentence, TargetVocabulary
from translane_server.runtime.backend import Candidates
from translane_server.runtime.graph_backend import GraphBackend
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions
from translane_server.text.tokenizer import load_tokenizer
from translane_server.workers.local import LocalDecoder

_PATIENCE = 240  # seconds for a request


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
        self._decoder = LocalDecoder(self.backend, self.vocabulary)

    def __enter__(self) -> BundleDecoder:
        self._decoder.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._decoder.__exit__(*exception)

    def together(self, sentences: Sequence[Sentence]) -> list[tuple[Hypothesis, ...]]:
        """Decode all sentences as one request; return the hypotheses of each sentence, best first."""
        return self._decoder.run(self._decode(sentences))

    def one_by_one(self, sentences: Sequence[Sentence]) -> list[tuple[Hypothesis, ...]]:
        """Decode each sentence alone in the batch."""
        return [self.together([sentence])[0] for sentence in sentences]

    def arriving(self, sentences: Sequence[Sentence], seed: int) -> list[tuple[Hypothesis, ...]]:
        """Decode each sentence as a request of its own, in random order and at random moments."""
        return self._decoder.run(self._arriving(sentences, random.Random(seed)))

    async def _arriving(self, sentences: Sequence[Sentence], shuffle: random.Random) -> list[tuple[Hypothesis, ...]]:
        order = shuffle.sample(range(len(sentences)), len(sentences))
        requests = {}
        for number in order:
            requests[number] = asyncio.create_task(self._decode([sentences[number]], shuffle.randrange(3)))
            await asyncio.sleep(shuffle.expovariate(2000))  # half a millisecond on average: a fraction of a step
        return [(await requests[number])[0] for number in range(len(sentences))]

    async def _decode(self, sentences: Sequence[Sentence], priority: int = 0) -> list[tuple[Hypothesis, ...]]:
        async with asyncio.timeout(_PATIENCE):
            results = await self._decoder.dispatcher.decode(sentences, priority)
        return [result.hypotheses for result in results]

    def _count_steps(self, backend: GraphBackend) -> None:
        step = backend.decode_step

        def counted_step(token_ids: IntArray, *arguments: Any, **keywords: Any) -> Candidates:
            self.step_rows.append(len(token_ids))
            return step(token_ids, *arguments, **keywords)

        backend.decode_step = counted_step  # type: ignore[method-assign]
