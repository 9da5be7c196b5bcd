"""A request in flight: sequences that are accepted and answered together."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from translane_server.core.errors import EngineError, RequestError
from translane_server.engine.sequence import AlignedToken, CommittedTokens, SentenceResult, Sequence
from translane_server.workers.fair_queue import Entry


@dataclass(eq=False, slots=True)
class AcceptedSequence(Sequence):
    """A sequence as the server has it.

    Attributes:
        request: its request.
        place: its place in the request.
        entry: its entry in the queue.
        failures: how often it was lost with its worker, or its step failed.
        failures_alone: how often this happened while it was alone.
        is_suspect: whether it decodes alone from now on, so that it cannot harm others.
    """

    request: InFlight
    place: int
    entry: Entry[AcceptedSequence] | None = None
    failures: int = 0
    failures_alone: int = 0
    is_suspect: bool = False


@dataclass(eq=False, slots=True)
class InFlight:
    """Sequences that are answered together. A sequence is identified by its place in the request.

    Attributes:
        results: result of each sequence; None if it is not decoded yet.
        missing: number of sequences that are not decoded yet.
        streamed: whether the caller takes committed tokens and results as they come.
        caller: who asks.
        sequences: the sequences; empty once the request is answered.
        error: the error that ends the request.
        is_over: nobody waits for the results any more.
        changed: set when the caller should look again.
    """

    results: list[SentenceResult | None]
    missing: int
    streamed: bool
    caller: str
    sequences: list[AcceptedSequence] = field(default_factory=list)
    error: RequestError | None = None
    is_over: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _streams: dict[int, _Stream] = field(default_factory=dict)

    def add_committed(self, place: int, tokens: CommittedTokens) -> None:
        """Add committed tokens of a sentence, until the caller takes them."""
        stream = self._streams.get(place)
        if stream is None:
            stream = self._streams[place] = _Stream()
        if not stream.add(tokens):
            self.fail(EngineError("a replica was lost, and the new translation differs from what was sent already"))
        self.changed.set()

    def take_committed(self, place: int) -> CommittedTokens | None:
        """Remove and return the committed tokens of a sentence; None if there are none."""
        stream = self._streams.get(place)
        return stream.take() if stream else None

    def restart(self, place: int) -> None:
        """Expect the committed tokens of a sentence from the beginning again."""
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
    """The committed tokens of a sentence.

    A sentence that is decoded again gives the same tokens again. They are not sent twice.
    """

    def __init__(self) -> None:
        self._ids: list[int] = []  # all tokens so far
        self._alignment: list[AlignedToken] = []  # of tokens that the caller has not taken
        self._taken = 0
        self.repeated = 0  # how many tokens the present decoding has given

    def add(self, tokens: CommittedTokens) -> bool:
        """Add the next tokens of the present decoding. Return whether they are the tokens of an earlier decoding."""
        ids, alignment = tokens
        known = self._ids[self.repeated : self.repeated + len(ids)]
        self.repeated += len(ids)
        if known and known != list(ids[: len(known)]):
            return False
        self._ids += ids[len(known) :]
        self._alignment += alignment[len(known) :]
        return True

    def take(self) -> CommittedTokens | None:
        ids = tuple(self._ids[self._taken :])
        if not ids:
            return None
        alignment, self._alignment = tuple(self._alignment), []
        self._taken = len(self._ids)
        return CommittedTokens(ids, alignment)
