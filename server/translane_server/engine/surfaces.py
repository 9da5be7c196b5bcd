"""The text of tokens, made of their surfaces (see `TargetVocabulary`), and an index of the surfaces.

A space at the start of the first surface does not belong to the text.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import numpy as np

from translane_server.core.arrays import BoolArray, IntArray

_SEPARATOR = b"\xff"  # UTF-8 does not use this byte


def tail_of(token_ids: Sequence[int], surfaces: Sequence[bytes], size: int) -> bytes | None:
    """The last `size` bytes of the text of some tokens; None if there is no text yet."""
    parts: list[bytes] = []
    length = 0
    for token in reversed(token_ids):
        if length > size:  # one byte more, because the first space does not count
            break
        parts.append(surfaces[token])
        length += len(parts[-1])
    if length > size:
        return b"".join(reversed(parts))[length - size :]
    return extended(None, b"".join(reversed(parts))) if length else None


def extended(text: bytes | None, surface: bytes) -> bytes:
    """A text, or the tail of a text, with the surface of one more token; None is no text yet."""
    return surface.removeprefix(b" ") if text is None else text + surface


class SurfaceIndex:
    """Finds tokens by their surfaces, without a pass over all V tokens in Python.

    Args:
        surfaces: the surface of each token, [V].
    """

    def __init__(self, surfaces: Sequence[bytes]) -> None:
        self.surfaces = surfaces
        order = sorted(range(len(surfaces)), key=surfaces.__getitem__)
        self._sorted = [surfaces[token] for token in order]
        self._order: IntArray = np.array(order, np.int64)
        self.longest = max(map(len, surfaces), default=0)
        self._joined = np.frombuffer(_SEPARATOR.join(surfaces), np.uint8)
        lengths = np.fromiter(map(len, surfaces), np.int64, len(surfaces))
        self._starts: IntArray = np.cumsum(lengths + 1) - lengths - 1  # place of each surface in the joined bytes

    def containing(self, text: bytes, *, first: bool = False) -> BoolArray:
        """Whether each token's surface contains `text` (≥ 1 byte), [V]; `first` is for the first token of a text."""
        found = np.zeros(len(self.surfaces), np.bool_)
        places = np.flatnonzero(self._joined == text[0])
        for offset, byte in enumerate(text[1:], start=1):
            if not len(places):  # most texts are longer than any surface
                return found
            places = places[places < len(self._joined) - offset]
            places = places[self._joined[places + offset] == byte]
        tokens = np.searchsorted(self._starts, places, side="right") - 1
        if first and text.startswith(b" "):
            tokens = tokens[places > self._starts[tokens]]
        found[tokens] = True
        return found

    def starting(self, text: bytes) -> IntArray:
        """The tokens whose surface begins with `text` (≥ 1 byte; the last byte is not 255)."""
        least = bisect.bisect_left(self._sorted, text)
        most = bisect.bisect_left(self._sorted, text[:-1] + bytes([text[-1] + 1]))
        return self._order[least:most]
