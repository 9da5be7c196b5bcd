"""Translane's replicas on a bundle, as something that decodes lists of token ids."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from workload import Load

from translane_server.bundle import load_bundle
from translane_server.devices import Device
from translane_server.observer import NullObserver
from translane_server.options import DecodingOptions
from translane_server.dispatch.dispatcher import Dispatcher
from translane_server.dispatch.processes import process_hosts
from translane_server.dispatch.connection import RemoteReplica
from translane_server.replica.setup import ReplicaSetup
from translane_server.request import Sentence, SentenceResult
from translane_server.submission import decode
from translane_server.vocabulary import TargetVocabulary

NEVER = -1  # an end-of-sentence id no model predicts
ENCODE_TOKENS = 2048  # the default of a server of one replica


class TranslaneDecoder:
    """What a server decodes with: replicas in processes of their own, and their dispatcher. Close it.

    Args:
        model: folder of the bundle.
        replicas: how many there are.
        threads: of ONNX Runtime in each.
        rows: of each: the sentences of a batch, times the beams.
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
        vocabulary = TargetVocabulary(ids.decoder_start, ids.eos if ends else NEVER)
        setups = [
            ReplicaSetup(
                number=number,
                bundle=bundle,
                device=device,
                threads=threads,
                rows=rows,
                source_capacity=min(source_tokens, limits.source_tokens),
                target_capacity=min(target_tokens, limits.target_tokens),
                encode_tokens=ENCODE_TOKENS,
                vocabulary=vocabulary,
                log_level="warning",
            )
            for number in range(replicas)
        ]
        hosts = process_hosts(replicas, threads)
        self._dispatcher = Dispatcher(
            [RemoteReplica(setup, host) for setup, host in zip(setups, hosts, strict=True)],
            waiting_limit=sys.maxsize,
            observer=NullObserver(),
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="dispatcher", daemon=True)
        self._thread.start()
        try:
            self._run(self._dispatcher.start())
        except BaseException:
            self._end_loop()
            raise

    def prepare(self, load: Load) -> list[Sentence]:
        """What `decode` takes."""
        lengths = load.lengths or [load.max_length] * len(load.sources)
        early = load.beam_size > 1
        options = {
            length: DecodingOptions(length, beam_size=load.beam_size, early_stopping=early, scores=False)
            for length in set(lengths)
        }
        return [Sentence(source, options[length]) for source, length in zip(load.sources, lengths, strict=True)]

    def decode(self, sentences: list[Sentence]) -> tuple[SentenceResult, ...]:
        """Translate them all, as one request."""
        return self._run(decode(self._dispatcher, sentences))

    def token_ids(self, results: tuple[SentenceResult, ...]) -> list[tuple[int, ...]]:
        """The best translations, in the order of the sources, without their ends."""
        return [result.hypotheses[0].token_ids for result in results]

    def close(self) -> None:
        self._run(self._dispatcher.stop())
        self._end_loop()

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _end_loop(self) -> None:
        self._run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
