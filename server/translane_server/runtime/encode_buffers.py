"""The encoder's inputs in main memory, at fixed addresses, and the bindings of its runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from translane_server.core.arrays import Int32Array, IntArray
from translane_server.runtime.step_buffers import bind_host

_MOST_BINDINGS = 1024  # a binding takes a few kilobytes, and about 30 µs to make


class EncodeBuffers:
    """The sources of one encoder run, padded to the longest source.

    Args:
        tokens: maximum number of ids of a run, padding included.
        pad: the id to pad with.
    """

    def __init__(self, tokens: int, pad: int) -> None:
        self._pad = pad
        self._source_ids: IntArray = np.zeros(tokens, np.int64)
        self._source_lengths: Int32Array = np.ones(tokens, np.int32)
        self._bindings: dict[tuple[int, int, int], Any] = {}  # by number of sources, padded length, and `start`

    def write(self, sources: Sequence[Sequence[int]], longest: int) -> None:
        """Write the inputs of the next run: `sources`, each padded to `longest` tokens."""
        assert len(sources) * longest <= len(self._source_ids), "sources are too long"
        self._source_lengths[: len(sources)] = [len(source) for source in sources]
        padded = self._source_ids[: len(sources) * longest].reshape(-1, longest)  # [B, S]
        padded.fill(self._pad)
        for row, source in zip(padded, sources, strict=True):
            row[: len(source)] = source

    def bind_inputs(self, binding: Any, sources: int, longest: int) -> None:
        """Bind the inputs of a run over so many sources of `longest` tokens."""
        bind_host(binding.bind_input, "source_ids", self._source_ids, (sources, longest))
        bind_host(binding.bind_input, "source_lengths", self._source_lengths, (sources,))

    def binding(self, sources: int, longest: int, start: int, make: Callable[[int, int, int], Any]) -> Any:
        """Return the binding of a run over so many sources of `longest` tokens whose output begins at `start`.

        `make` makes a binding when it is first needed.
        """
        key = sources, longest, start
        binding = self._bindings.get(key)
        if binding is None:
            if len(self._bindings) >= _MOST_BINDINGS:
                self._bindings.clear()
            binding = self._bindings[key] = make(*key)
        return binding

    def clear(self) -> None:
        """Drop the bindings."""
        self._bindings.clear()
