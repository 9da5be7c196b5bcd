"""Attention weights of decoder steps. A separate graph, the alignment graph, computes them when a step needs them.

The decoder's graph returns the query of one layer. The alignment graph compares the query with that layer's keys in the
rows' cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from translane_server.core.arrays import FloatArray, Int32Array
from translane_server.runtime.cache import CacheShape
from translane_server.runtime.step_buffers import bind_host


class AttentionGraph:
    """Runs the alignment graph over rows 0 … n-1.

    Args:
        session: the graph.
        shape: sizes of the rows' memory.
        query: [R, H * D], of self-attention's type. The decoder writes the query here.
        keys: address of the layer's cross-attention keys, [R, H, C, D].
        source_lengths: source length of every row, [R].
    """

    def __init__(
        self,
        session: Any,
        shape: CacheShape,
        *,
        query: npt.NDArray[np.generic],
        keys: int,
        source_lengths: Int32Array,
    ) -> None:
        self._session = session
        self._shape = shape
        self._query = query
        self._keys = keys
        self._source_lengths = source_lengths
        self._weights: FloatArray = np.zeros(shape.rows * shape.source_capacity, np.float32)
        self._bindings: dict[int, Any] = {}  # by number of rows

    def bind_query(self, binding: Any, n: int) -> None:
        """Bind the decoder's query output over n rows."""
        bind_host(binding.bind_output, "alignment_query", self._query, self._query_shape(n))

    def run(self, n: int) -> FloatArray:
        """Return the attention weights of the step that wrote the query, [n, C]. The next run overwrites them."""
        binding = self._bindings.get(n)
        if binding is None:
            binding = self._bindings[n] = self._bind(n)
        self._session.run_with_iobinding(binding)
        capacity = self._shape.source_capacity
        return self._weights[: n * capacity].reshape(n, capacity)

    def close(self) -> None:
        """Drop the bindings, which refer to memory of other objects."""
        self._bindings.clear()

    def _bind(self, n: int) -> Any:
        shape, binding = self._shape, self._session.io_binding()
        bind_host(binding.bind_input, "source_lengths", self._source_lengths, (n,))
        bind_host(binding.bind_input, "alignment_query", self._query, self._query_shape(n))
        block = (n, shape.heads, shape.source_capacity, shape.head_size)  # [n, H, C, D]
        binding.bind_input("cross_key", "cpu", 0, shape.cross_dtype, block, self._keys)
        bind_host(binding.bind_output, "attention", self._weights, (n, shape.source_capacity))
        return binding

    def _query_shape(self, n: int) -> tuple[int, int]:
        return n, self._shape.query_width
