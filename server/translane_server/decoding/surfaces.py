"""The text of tokens, as the UTF-8 that each adds to it (see `TargetVocabulary`), and tokens by what they add.

A text's first space is no part of it.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import numpy as np

from translane_server.arrays import BoolArray, IntArray

_SEPARATOR = b"\xff"  # in no text: UTF-8 does not use it


def tail_of(token_ids: Sequence[int], surfaces: Sequence[bytes], size: int) -> bytes | None:
    """The last `size` bytes of the text of some tokens, or all of it if that is less; None if it has not begun."""
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


class SurfaceIndex:
    """Finds the tokens of a vocabulary of V by what they add to a text, without looking at each.

    Args:
        surfaces: what each token adds.
    """

    def __init__(self, surfaces: Sequence[bytes]) -> None:
        self.surfaces = surfaces
        order = sorted(range(len(surfaces)), key=surfaces.__getitem__)
        self._sorted = [surfaces[token] for token in order]
        self._order: IntArray = np.array(order, np.int64)
        self.longest = max(map(len, surfaces), default=0)
        self._joined = np.frombuffer(_SEPARATOR.join(surfaces), np.uint8)
        lengths = np.fromiter(map(len, surfaces), np.int64, len(surfaces))
        self._starts: IntArray = np.cumsum(lengths + 1) - lengths - 1  # of each surface in the joined ones

    def containing(self, text: bytes, *, first: bool = False) -> BoolArray:
        """Which tokens have `text` (at least a byte) in what they add to a text; as its `first` token or later, [V]."""
        found = np.zeros(len(self.surfaces), np.bool_)
        places = np.flatnonzero(self._joined == text[0])
        for offset, byte in enumerate(text[1:], start=1):
            places = places[places < len(self._joined) - offset]
            places = places[self._joined[places + offset] == byte]
        tokens = np.searchsorted(self._starts, places, side="right") - 1
        if first and text.startswith(b" "):
            tokens = tokens[places > self._starts[tokens]]
        found[tokens] = True
        return found

    def starting(self, text: bytes) -> IntArray:
        """The tokens that begin with `text` (at least a byte, the last one not the largest there is)."""
        least = bisect.bisect_left(self._sorted, text)
        most = bisect.bisect_left(self._sorted, text[:-1] + bytes([text[-1] + 1]))
        return self._order[least:most]
