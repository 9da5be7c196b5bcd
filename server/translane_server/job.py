"""One sentence on its way through the engine, and the request it belongs to."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from translane_server.errors import CancelledError, RequestError
from translane_server.request import Request, Sentence, SentenceResult

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class PendingRequest:
    """An accepted request that is not answered yet: `results` fills up, in the order of the sentences.

    Attributes:
        request: what was asked for.
        submitted_at: when [seconds of the engine's clock].
        cancelled: whether nobody wants it any more.
        results: of each sentence, once it is decoded.
        unfinished: how many sentences are neither decoded nor given up.
    """

    request: Request
    submitted_at: float
    cancelled: bool = False
    results: list[SentenceResult | None] = field(init=False)
    unfinished: int = field(init=False)

    def __post_init__(self) -> None:
        self.unfinished = len(self.request.sentences)
        self.results = [None] * self.unfinished

    def jobs(self) -> list[Job]:
        """A job for each sentence."""
        return [Job(self, index, sentence) for index, sentence in enumerate(self.request.sentences)]

    def finish(self, job: Job, result: SentenceResult) -> bool:
        """Take the result of one sentence; True when it was the last one."""
        assert self.results[job.index] is None, "a sentence finishes once"
        self.results[job.index] = result
        return self.drop(1)

    def drop(self, sentences: int) -> bool:
        """Go on without so many sentences; True when none is left."""
        self.unfinished -= sentences
        return self.unfinished == 0

    def answer(self, error: RequestError | None = None) -> None:
        """Hand the results to the caller, or the error, or that the request was cancelled."""
        if self.cancelled:
            error = CancelledError("the request was cancelled")
        try:
            self.request.on_done(error or tuple(result for result in self.results if result is not None))
        except Exception:  # noqa: BLE001 one caller's bug is not the others' problem
            _log.exception("a request's callback failed")


@dataclass(eq=False, slots=True)
class Job:
    """A sentence, its place in its request, and when it got how far [seconds of the engine's clock]."""

    pending: PendingRequest
    index: int
    sentence: Sentence
    admitted_at: float = 0.0
    encoded_at: float = 0.0

    @property
    def priority(self) -> int:
        """The priority of the request."""
        return self.pending.request.priority

    @property
    def rows(self) -> int:
        """Rows the sentence takes at most."""
        return self.sentence.options.rows

    @property
    def source_length(self) -> int:
        """Source tokens S."""
        return len(self.sentence.source_ids)
