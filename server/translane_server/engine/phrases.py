"""Phrases that may not occur in the text, in any tokenization."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from translane_server.core.arrays import BoolArray
from translane_server.engine.surfaces import SurfaceIndex, tail_of


class SuppressedPhrases:
    """The suppressed phrases of a sentence.

    Phrases are found in the UTF-8 that tokens add to the text. So the tokenization does not matter, and tokens may hold
    parts of characters.

    Args:
        phrases: UTF-8 of each phrase; empty phrases are ignored.
        index: index of the target vocabulary.
    """

    def __init__(self, phrases: Sequence[bytes], index: SurfaceIndex) -> None:
        present = sorted({phrase for phrase in phrases if phrase})
        self._index = index
        self._longest = max(map(len, present), default=0)
        self._holding = _any(index, [index.containing(phrase) for phrase in present])
        self._holding_first = _any(index, [index.containing(phrase, first=True) for phrase in present])
        self._rests: dict[bytes, list[bytes]] = {}  # beginning of a phrase -> possible rests
        for phrase in present:
            for length in range(max(1, len(phrase) - index.longest), len(phrase)):  # the rest must fit into a token
                self._rests.setdefault(phrase[:length], []).append(phrase[length:])

    def banned(self, generated_ids: Sequence[int]) -> BoolArray:
        """Whether each token would complete a phrase, [V]. The caller must not write to the array.

        Args:
            generated_ids: the tokens so far, with forced tokens.
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
