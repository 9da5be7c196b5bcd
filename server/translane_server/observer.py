"""What the engine tells whoever measures it."""

from __future__ import annotations

from typing import Protocol


class EngineObserver(Protocol):
    """Called between the engine's steps, or on the server's event loop: so every method returns at once.

    All times are in seconds.
    """

    def encoded(self, seconds: float, sentences: int, source_tokens: int) -> None:
        """`sentences` sentences of `source_tokens` tokens in all were encoded, in as many runs as suit them."""

    def admitted(self, queue_seconds: float) -> None:
        """A sentence got its row after waiting `queue_seconds`. Called once for each sentence."""

    def stepped(self, seconds: float, rows: int) -> None:
        """The decoder ran one step over `rows` rows, each of which got one token."""

    def moved(self, seconds: float, rows: int) -> None:
        """Hypotheses were copied to `rows` rows, between two steps."""

    def first_token(self, seconds: float) -> None:
        """A sentence got its first token, `seconds` after its request was accepted."""


class NullObserver:
    """Measures nothing."""

    def encoded(self, seconds: float, sentences: int, source_tokens: int) -> None:
        """See `EngineObserver`."""

    def admitted(self, queue_seconds: float) -> None:
        """See `EngineObserver`."""

    def stepped(self, seconds: float, rows: int) -> None:
        """See `EngineObserver`."""

    def moved(self, seconds: float, rows: int) -> None:
        """See `EngineObserver`."""

    def first_token(self, seconds: float) -> None:
        """See `EngineObserver`."""
