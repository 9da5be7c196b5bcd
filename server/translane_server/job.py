"""One sentence on its way through the engine, and the request it belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field

from translane_server.errors import RequestError
from translane_server.request import Request, Sentence, SentenceResult


@dataclass(eq=False, slots=True)
class PendingRequest:
    """An accepted request that is not answered yet: `results` fills up, in the order of the sentences."""

    request: Request
    submitted_at: float
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
        self.unfinished -= 1
        return self.unfinished == 0

    def answer(self, error: RequestError | None = None) -> None:
        """Hand the results, or the error, to the caller."""
        if error is not None:
            self.request.on_done(error)
        else:
            self.request.on_done(tuple(result for result in self.results if result is not None))


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
