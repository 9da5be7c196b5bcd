"""Translane as a decoder of token ids."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.models.workload import Load
from translane_server.bundle.bundle import load_bundle
from translane_server.bundle.devices import Device
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Sentence, SentenceResult, TargetVocabulary
from translane_server.workers.dispatcher import Dispatcher
from translane_server.workers.messages import ModelSetup
from translane_server.workers.placement import Placement
from translane_server.workers.processes import process_workers

NEVER = -1  # an end-of-sentence id that no model predicts


class TranslaneDecoder:
    """A server's replicas, in processes of their own, and their dispatcher. Close it.

    `rows` of each replica are the sentences of a batch, times the beams. `ends` says whether the model ends sentences,
    or only their lengths do.

    Raises:
        StartupError: a replica does not start.
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
        limits = bundle.manifest.limits
        setup = ModelSetup(
            bundle=bundle,
            device=device,
            threads=threads,
            source_capacity=min(source_tokens, limits.source_tokens),
            target_capacity=min(target_tokens, limits.target_tokens),
            log_level="warning",
        )
        ids = bundle.manifest.special_ids
        vocabulary = TargetVocabulary(ids.decoder_start, ids.eos if ends else NEVER, ())
        plan = Placement((rows,) * replicas, threads)
        workers = process_workers(plan, vocabulary, setup)
        self._dispatcher = Dispatcher(workers, waiting_limit=sys.maxsize, lone_rows=plan.lone_rows)
        self._runner = asyncio.Runner()
        try:
            self._runner.run(self._dispatcher.start())
        except BaseException:
            self._runner.close()
            raise

    def prepare(self, load: Load) -> list[Sentence]:
        """The sentences that `decode` takes."""
        lengths = load.lengths or [load.max_length] * len(load.sources)
        early = load.beam_size > 1
        options = {
            length: DecodingOptions(length, beam_size=load.beam_size, early_stopping=early, scores=False)
            for length in set(lengths)
        }
        return [Sentence(source, options[length]) for source, length in zip(load.sources, lengths, strict=True)]

    def decode(self, sentences: Sequence[Sentence]) -> tuple[SentenceResult, ...]:
        """Translate all sentences, as one request."""
        return self._runner.run(self._dispatcher.decode(sentences))

    def token_ids(self, results: Sequence[SentenceResult]) -> list[tuple[int, ...]]:
        """The best translations, in the order of the sources, without their ends."""
        return [result.hypotheses[0].token_ids for result in results]

    def close(self) -> None:
        """End the replicas."""
        self._runner.run(self._dispatcher.stop())
        self._runner.close()
