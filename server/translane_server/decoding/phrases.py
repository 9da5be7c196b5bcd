"""Phrases that may not occur in the text, however it is cut into tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from translane_server.arrays import BoolArray
from translane_server.decoding.surfaces import SurfaceIndex, tail_of


class SuppressedPhrases:
    """What may not occur in the text of a sentence.

    Phrases are looked for in the UTF-8 that tokens add to the text: they are found in any tokenisation, and across
    pieces of characters.

    Args:
        phrases: UTF-8 of each phrase; empty ones are passed over.
        index: of the target vocabulary.
    """

    def __init__(self, phrases: Sequence[bytes], index: SurfaceIndex) -> None:
        present = sorted({phrase for phrase in phrases if phrase})
        self._index = index
        self._longest = max(map(len, present), default=0)
        self._holding = _any(index, [index.containing(phrase) for phrase in present])
        self._holding_first = _any(index, [index.containing(phrase, first=True) for phrase in present])
        self._rests: dict[bytes, list[bytes]] = {}  # beginning of a phrase -> what completes it
        for phrase in present:
            for length in range(max(1, len(phrase) - index.longest), len(phrase)):  # what is left fits into a token
                self._rests.setdefault(phrase[:length], []).append(phrase[length:])

    def banned(self, generated_ids: Sequence[int]) -> BoolArray:
        """Which of the V tokens would complete a phrase, [V]; not to be written to.

        Args:
            generated_ids: the tokens so far, forced ones included.
        """
        tail = tail_of(generated_ids, self._index.surfaces, self._longest - 1)
        if tail is None:
            return self._holding_first
        rests = {rest for start in range(len(tail)) for rest in self._rests.get(tail[start:], ())}
        if not rests:
            return self._holding
        banned = self._holding.copy()
        banned[np.concatenate([self._index.starting(rest) for rest in rests])] = True
        return banned


def _any(index: SurfaceIndex, masks: Sequence[BoolArray]) -> BoolArray:
    result: BoolArray = np.logical_or.reduce(masks) if masks else np.zeros(len(index.surfaces), np.bool_)
    return result
