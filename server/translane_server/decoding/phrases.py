"""Phrases that may not occur in the text, however it is cut into tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from translane_server.backend import IntArray

BoolArray = npt.NDArray[np.bool_]


class SuppressedPhrases:
    """What may not occur in the text of one sentence.

    Phrases are looked for in the UTF-8 that tokens add to the text: they are found in any tokenisation, and across
    pieces of characters.

    Args:
        phrases: UTF-8 of each phrase; empty ones are passed over.
        surfaces: what each token adds to the text; see `TargetVocabulary`.
    """

    def __init__(self, phrases: Sequence[bytes], surfaces: Sequence[bytes]) -> None:
        present = sorted({phrase for phrase in phrases if phrase})
        self._surfaces = surfaces
        self._longest = max(map(len, present), default=0)
        self._any = re.compile(b"|".join(map(re.escape, present)) if present else rb"(?!)")
        self._holds_one: dict[int, bool] = {}  # token -> whether its surface has a phrase in it
        self._rests: dict[bytes, list[bytes]] = {}  # beginning of a phrase -> what completes it
        for phrase in present:
            for length in range(1, len(phrase)):
                self._rests.setdefault(phrase[:length], []).append(phrase[length:])

    def banned(self, generated_ids: Sequence[int], candidate_ids: IntArray) -> BoolArray:
        """Whether each of N candidates would complete a phrase, [N].

        Args:
            generated_ids: the tokens so far, forced ones included.
            candidate_ids: which of the vocabulary may come next, [N].
        """
        tail = tail_of(generated_ids, self._surfaces, self._longest - 1)
        ids = candidate_ids.tolist()
        if tail is None:
            begun = (extended(None, self._surfaces[token]) for token in ids)
            return np.array([self._any.search(text) is not None for text in begun], np.bool_)
        rests = tuple(rest for start in range(len(tail)) for rest in self._rests.get(tail[start:], ()))
        return np.array([self._holds(token) or self._surfaces[token].startswith(rests) for token in ids], np.bool_)

    def _holds(self, token: int) -> bool:
        known = self._holds_one.get(token)
        if known is None:
            known = self._holds_one[token] = self._any.search(self._surfaces[token]) is not None
        return known


def tail_of(token_ids: Sequence[int], surfaces: Sequence[bytes], size: int) -> bytes | None:
    """The last `size` bytes of the text of some tokens, or all of it if that is less; None if it has not begun.

    A text's first space is no part of it.
    """
    parts: list[bytes] = []
    length = 0
    for token in reversed(token_ids):
        if length > size:  # by one byte at least, so that it is not the text's first space that counts
            break
        parts.append(surfaces[token])
        length += len(parts[-1])
    if length > size:
        return b"".join(reversed(parts))[length - size :]
    return extended(None, b"".join(reversed(parts))) if length else None


def extended(text: bytes | None, surface: bytes) -> bytes:
    """A text, or its tail, with what a token adds to it; None is a text that has not begun."""
    return surface.removeprefix(b" ") if text is None else text + surface
