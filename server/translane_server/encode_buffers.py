"""What the encoder reads and where it writes, at addresses that the bindings of its graph keep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from translane_server.backend import Int32Array, IntArray
from translane_server.step_buffers import bind_host

_MOST_BINDINGS = 1024  # a binding takes some kilobytes, and longer to make than a small model to encode a sentence


class EncodeBuffers:
    """Sources for one run of the encoder, padded to the longest of them.

    Args:
        rows: how many sources there are at most.
        tokens: how many ids they are at most, padding included.
        pad: the id to pad with.
    """

    def __init__(self, rows: int, tokens: int, pad: int) -> None:
        self._pad = pad
        self._source_ids: IntArray = np.zeros(tokens, np.int64)
        self._source_lengths: Int32Array = np.ones(rows, np.int32)
        self._bindings: dict[tuple[int, int], Any] = {}  # by number of sources and padded length

    def write(self, sources: Sequence[Sequence[int]]) -> tuple[Int32Array, int]:
        """Set what the encoder reads next; return the lengths [B] and the longest."""
        lengths = self._source_lengths[: len(sources)]
        lengths[:] = [len(source) for source in sources]
        longest = int(lengths.max())
        assert lengths.min() >= 1, "an empty source"
        assert len(sources) * longest <= len(self._source_ids), "sources are too long"
        padded = self._source_ids[: len(sources) * longest].reshape(-1, longest)  # [B, S]
        padded.fill(self._pad)
        for row, source in zip(padded, sources, strict=True):
            row[: len(source)] = source
        return lengths, longest

    def bind_inputs(self, binding: Any, sources: int, longest: int) -> None:
        """Bind what a run over so many sources reads."""
        bind_host(binding.bind_input, "source_ids", self._source_ids, (sources, longest))
        bind_host(binding.bind_input, "source_lengths", self._source_lengths, (sources,))

    def binding(self, sources: int, longest: int, make: Callable[[int, int], Any]) -> Any:
        """Return the binding for a run over so many sources of that length, which `make` makes the first time."""
        binding = self._bindings.get((sources, longest))
        if binding is None:
            if len(self._bindings) >= _MOST_BINDINGS:
                self._bindings.clear()
            binding = self._bindings[sources, longest] = make(sources, longest)
        return binding

    def clear(self) -> None:
        """Forget the bindings."""
        self._bindings.clear()
