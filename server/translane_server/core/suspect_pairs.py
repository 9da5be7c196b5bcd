"""Pairs of a source and a translation that look like mistakes of a model, by rules that need no other translation."""

from __future__ import annotations

EMPTY, COPY, RATIO = "empty translation", "copy of the source", "lengths too different"
"""What makes a pair suspect."""


def suspicion(source: str, translation: str, source_pieces: int, translation_pieces: int, max_ratio: float) -> str:
    """Return the first rule that makes a pair suspect; "" if none does.

    The pieces of a text count with the end of the sentence. One side may have `max_ratio` times as many as the other.
    """
    if not translation:
        return EMPTY
    if translation == source:
        return COPY
    sizes = (source_pieces, translation_pieces)
    return RATIO if max(sizes) > max_ratio * min(sizes) else ""
