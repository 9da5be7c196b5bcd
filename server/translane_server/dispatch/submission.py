"""A request: sentences that are accepted and answered together."""

from __future__ import annotations

import asyncio

from translane_server.errors import RequestError
from translane_server.sentence import AlignedToken, CertainTokens, SentenceResult


class Submission:
    """Accepted sentences that are answered together. A sentence is identified by its place in the request.

    Args:
        sentences: number of sentences.
        streamed: whether the caller takes certain tokens and results as they come.

    Attributes:
        results: result of each sentence; None if it is not decoded yet.
        missing: number of sentences that are not decoded yet.
        error: the error that ends the request.
        certain: place of a sentence -> its certain tokens that the caller has not taken yet.
        changed: set when the caller should look again.
    """

    def __init__(self, sentences: int, *, streamed: bool) -> None:
        self.streamed = streamed
        self.results: list[SentenceResult | None] = [None] * sentences
        self.missing = sentences
        self.error: RequestError | None = None
        self.certain: dict[int, tuple[list[int], list[AlignedToken]]] = {}
        self.changed = asyncio.Event()

    def add_certain(self, place: int, tokens: CertainTokens) -> None:
        """Add certain tokens of a sentence, until the caller takes them."""
        ids, alignment = self.certain.setdefault(place, ([], []))
        ids += tokens.token_ids
        alignment += tokens.alignment
        self.changed.set()

    def take_certain(self, place: int) -> CertainTokens | None:
        """Remove and return the certain tokens of a sentence; None if there are none."""
        found = self.certain.pop(place, None)
        return CertainTokens(tuple(found[0]), tuple(found[1])) if found else None

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
