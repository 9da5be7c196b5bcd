"""One sentence on its way through the engine, and the request it belongs to."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import cast

from translane_server.errors import CancelledError, EngineError, RequestError, UnavailableError
from translane_server.request import Request, Sentence, SentenceResult, Timing

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Job:
    """A sentence that is to be decoded, and when it got how far [seconds of the engine's clock].

    Attributes:
        sentence: to decode.
        priority: of its request.
        submitted_at: when its request was accepted.
        rows: that it takes at most.
        source_length: its source tokens S.
        admitted_at: when it was taken to be encoded.
        encoded_at: when it was, and got its row.
    """

    sentence: Sentence
    priority: int
    submitted_at: float
    rows: int = field(init=False)
    source_length: int = field(init=False)
    admitted_at: float = field(init=False)
    encoded_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.rows = self.sentence.options.rows
        self.source_length = len(self.sentence.source_ids)

    def timing(self, now: float) -> Timing:
        """Where its time went; it is decoded."""
        return Timing(self.admitted_at - self.submitted_at, self.encoded_at - self.admitted_at, now - self.encoded_at)


@dataclass(eq=False, slots=True)
class RequestedJob(Job):
    """A sentence of a request, and its place there."""

    pending: PendingRequest
    index: int


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

    def jobs(self) -> list[RequestedJob]:
        """A job for each sentence."""
        priority, submitted_at = self.request.priority, self.submitted_at
        return [
            RequestedJob(sentence, priority, submitted_at, self, index)
            for index, sentence in enumerate(self.request.sentences)
        ]

    def finish(self, job: RequestedJob, result: SentenceResult) -> bool:
        """Take the result of one sentence; True when it was the last one."""
        assert self.results[job.index] is None, "a sentence finishes once"
        self.results[job.index] = result
        self.unfinished -= 1
        return self.unfinished == 0

    def drop(self, sentences: int) -> bool:
        """Go on without so many sentences; True when none is left."""
        self.unfinished -= sentences
        return self.unfinished == 0

    def answer(self, error: RequestError | None = None) -> None:
        """Hand the results to the caller, which are there then, or the error, or that the request was cancelled."""
        if self.cancelled:
            error = CancelledError("the request was cancelled")
        try:
            self.request.on_done(error or cast("tuple[SentenceResult, ...]", tuple(self.results)))
        except Exception:  # noqa: BLE001 one caller's bug is not the others' problem
            _log.exception("a request's callback failed")


def refusal(*, failed: bool) -> RequestError:
    """Why an engine that stops, or has failed, accepts no request."""
    if failed:
        return EngineError("the engine has failed; the server needs a restart")
    return UnavailableError("the server is shutting down", retry_after=1.0)


def abandonment(*, failed: bool) -> RequestError:
    """The answer to requests that an engine leaves when it has stopped, or failed."""
    if failed:
        return EngineError("decoding failed; the server needs a restart")
    return UnavailableError("the server has shut down", retry_after=1.0)
