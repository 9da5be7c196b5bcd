"""A request in flight: sequences that are accepted and answered together."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from translane_server.core.errors import EngineError, RequestError
from translane_server.engine.sequence import AlignedToken, CommittedTokens, SentenceResult, Sequence
from translane_server.workers.fair_queue import Entry


@dataclass(eq=False, slots=True)
class AcceptedSequence(Sequence):
    """A sequence as the server has it."""

    request: InFlight  # its request
    place: int  # its place in the request
    entry: Entry[AcceptedSequence] | None = None  # its entry in the queue
    failures: int = 0  # how often it was lost with its worker, or its step failed
    failures_alone: int = 0  # how often this happened while it was alone
    is_suspect: bool = False  # whether it decodes alone from now on, so that it cannot harm others


@dataclass(eq=False, slots=True)
class InFlight:
    """Sequences that are answered together. A sequence is identified by its place in the request."""

    results: list[SentenceResult | None]  # result of each sequence; None if it is not decoded yet
    missing: int  # number of sequences that are not decoded yet
    streamed: bool  # whether the caller takes committed tokens and results as they come
    caller: str  # who asks
    sequences: list[AcceptedSequence] = field(default_factory=list)  # the sequences; empty once the request is answered
    error: RequestError | None = None  # the error that ends the request
    is_over: bool = False  # nobody waits for the results any more
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # set when the caller should look again
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
