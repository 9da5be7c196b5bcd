"""Decodes sentences that are all there, on the caller's thread: without a server, a worker or an event loop."""

from __future__ import annotations

import time
from collections import abc

from translane_server.core.errors import EngineError
from translane_server.engine.loop import EngineLoop, ServerGoneError
from translane_server.engine.sequence import (
    EngineInput,
    EngineOutput,
    Sentence,
    SentenceResult,
    Sequence,
    TargetVocabulary,
)
from translane_server.runtime.backend import Backend


def decode(
    backend: Backend, vocabulary: TargetVocabulary, sentences: abc.Sequence[Sentence]
) -> tuple[SentenceResult, ...]:
    """Return the result of each sentence. No sentence takes more rows than the backend has. The backend stays open.

    Raises:
        EngineError: a step fails. The log says why.
    """
    given = GivenSequences(
        [Sequence(number, 0, time.perf_counter(), False, each) for number, each in enumerate(sentences)]
    )
    EngineLoop(backend, given, vocabulary).run()
    if len(given.results) < len(sentences):
        raise EngineError("the model has failed in a step")
    return tuple([given.results[number] for number in range(len(sentences))])


class GivenSequences:
    """Gives all sequences at once, and goes when the last one has ended or one has failed. See `loop.ServerLink`."""

    def __init__(self, sequences: list[Sequence]) -> None:
        self._sequences = sequences
        self._left = len(sequences)
        self.results: dict[int, SentenceResult] = {}  # the result of each sequence, by its number

    def has_arrivals(self) -> bool:
        return False

    def inputs(self, *, wait: bool) -> list[EngineInput]:  # noqa: ARG002  nothing comes later
        if not self._left:
            raise ServerGoneError
        sequences, self._sequences = self._sequences, []
        return [EngineInput(sequences, [])] if sequences else []

    def put(self, output: EngineOutput) -> None:
        self.results.update(output.ended)
        self._left = 0 if output.failed else self._left - len(output.ended)
