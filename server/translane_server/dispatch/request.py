"""Sentences that are answered together, from their acceptance to their answer."""

from __future__ import annotations

import asyncio

from translane_server.errors import RequestError
from translane_server.sentence import AlignedToken, CertainTokens, SentenceResult


class Request:
    """Accepted sentences that are answered together.

    Attributes:
        results: of each sentence, once it is decoded.
        missing: how many sentences are not decoded.
        error: why the others never will be.
        certain: of streamed sentences, the tokens that nobody has taken yet; by their places.
        changed: set when there is something new to look at.
    """

    def __init__(self, sentences: int, *, streamed: bool) -> None:
        self.streamed = streamed
        self.results: list[SentenceResult | None] = [None] * sentences
        self.missing = sentences
        self.error: RequestError | None = None
        self.certain: dict[int, tuple[list[int], list[AlignedToken]]] = {}
        self.changed = asyncio.Event()

    def add_certain(self, place: int, tokens: CertainTokens) -> None:
        """Keep tokens that are certain until somebody takes them."""
        ids, alignment = self.certain.setdefault(place, ([], []))
        ids += tokens.token_ids
        alignment += tokens.alignment
        self.changed.set()

    def take_certain(self, place: int) -> CertainTokens | None:
        """The certain tokens of a sentence since the last call, if there are any."""
        found = self.certain.pop(place, None)
        return CertainTokens(tuple(found[0]), tuple(found[1])) if found else None

    def finish(self, place: int, result: SentenceResult) -> None:
        """Take the result of a sentence."""
        assert self.results[place] is None, "a sentence finishes once"
        self.results[place] = result
        self.missing -= 1
        if self.streamed or not self.missing:
            self.changed.set()

    def fail(self, error: RequestError) -> None:
        """Answer with `error`."""
        self.error = error
        self.changed.set()
