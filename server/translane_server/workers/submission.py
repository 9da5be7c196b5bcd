"""A request: sentences that are accepted and answered together."""

from __future__ import annotations

import asyncio

from translane_server.core.errors import EngineError, RequestError
from translane_server.engine.sequence import AlignedToken, CertainTokens, SentenceResult, Task
from translane_server.workers.fair_queue import Entry


class Accepted:
    """An accepted sentence.

    Args:
        request: its request.
        place: its place in the request.
        task: the task that a replica gets.
        caller: who asks.

    Attributes:
        failures_together: how often it was lost with its replica, or its step failed, together with other sentences.
        failures_alone: how often this happened while it was alone.
        entry: its entry in the queue.
    """

    __slots__ = ("caller", "entry", "failures_alone", "failures_together", "place", "request", "task")

    def __init__(self, request: Submission, place: int, task: Task, caller: str = "") -> None:
        self.request = request
        self.place = place
        self.task = task
        self.caller = caller
        self.failures_together = self.failures_alone = 0
        self.entry: Entry[Accepted] | None = None


class Submission:
    """Accepted sentences that are answered together. A sentence is identified by its place in the request.

    Args:
        sentences: number of sentences.
        streamed: whether the caller takes certain tokens and results as they come.

    Attributes:
        accepted: the sentences; empty once the request is answered.
        results: result of each sentence; None if it is not decoded yet.
        missing: number of sentences that are not decoded yet.
        error: the error that ends the request.
        is_over: nobody waits for the results any more.
        changed: set when the caller should look again.
    """

    def __init__(self, sentences: int, *, streamed: bool) -> None:
        self.streamed = streamed
        self.accepted: list[Accepted] = []
        self.results: list[SentenceResult | None] = [None] * sentences
        self.missing = sentences
        self.error: RequestError | None = None
        self.is_over = False
        self.changed = asyncio.Event()
        self._streams: dict[int, _Stream] = {}

    def add_certain(self, place: int, tokens: CertainTokens) -> None:
        """Add certain tokens of a sentence, until the caller takes them."""
        stream = self._streams.get(place)
        if stream is None:
            stream = self._streams[place] = _Stream()
        if not stream.add(tokens):
            self.fail(EngineError("a replica was lost, and the new translation differs from what was sent already"))
        self.changed.set()

    def take_certain(self, place: int) -> CertainTokens | None:
        """Remove and return the certain tokens of a sentence; None if there are none."""
        stream = self._streams.get(place)
        return stream.take() if stream else None

    def restart(self, place: int) -> None:
        """Expect the certain tokens of a sentence from the beginning again."""
        if stream := self._streams.get(place):
            stream.repeated = 0

    def finish(self, place: int, result: SentenceResult) -> None:
        """Set the result of a sentence."""
        assert self.results[place] is None, "a sentence finishes once"
        self.results[place] = result
        self.missing -= 1
        if self.streamed or not self.missing:
            self.changed.set()

    def fail(self, error: RequestError) -> None:
        """End the request with `error`."""
        self.error = error
        self.changed.set()


class _Stream:
    """The certain tokens of a sentence.

    A sentence that is decoded again gives the same tokens again. They are not sent twice.
    """

    def __init__(self) -> None:
        self._ids: list[int] = []  # all tokens so far
        self._alignment: list[AlignedToken] = []  # of tokens that the caller has not taken
        self._taken = 0
        self.repeated = 0  # how many tokens the present decoding has given

    def add(self, tokens: CertainTokens) -> bool:
        """Add the next tokens of the present decoding. Return whether they are the tokens of an earlier decoding."""
        ids, alignment = tokens
        known = self._ids[self.repeated : self.repeated + len(ids)]
        self.repeated += len(ids)
        if known and known != list(ids[: len(known)]):
            return False
        self._ids += ids[len(known) :]
        self._alignment += alignment[len(known) :]
        return True

    def take(self) -> CertainTokens | None:
        ids = tuple(self._ids[self._taken :])
        if not ids:
            return None
        alignment, self._alignment = tuple(self._alignment), []
        self._taken = len(self._ids)
        return CertainTokens(ids, alignment)
