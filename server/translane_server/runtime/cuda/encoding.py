"""The encoder on a CUDA device: sources, keys and values are in device memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache

import numpy as np

from translane_server.core.arrays import Int32Array, IntArray
from translane_server.runtime.buffers import write_padded
from translane_server.runtime.cuda.cache import CudaCache
from translane_server.runtime.cuda.step_memory import Mirrored
from translane_server.runtime.cuda_runtime import CudaRuntime
from translane_server.runtime.graph_backend import Group
from translane_server.runtime.sessions import Sessions

_MOST_BINDINGS = 1024  # a binding takes a few kilobytes


@dataclass(eq=False)
class CudaEncoder:
    """Runs the encoder over groups of sources, of `tokens` ids at most, with the padding."""

    sessions: Sessions
    runtime: CudaRuntime
    cache: CudaCache
    _: KW_ONLY
    tokens: int
    pad: int
    element_type: int  # ONNX's type number of keys and values

    def __post_init__(self) -> None:
        self._vocab_size = self.sessions.bundle.manifest.architecture.source_vocab_size
        id_bytes = 8 * self.tokens
        self._memory = Mirrored(self.runtime, id_bytes + 4 * self.tokens)
        self._ids: IntArray = self._memory.host[:id_bytes].view(np.int64)
        self._lengths: Int32Array = self._memory.host[id_bytes:].view(np.int32)
        self._lengths_address = self._memory.address + id_bytes
        self._run = lru_cache(_MOST_BINDINGS)(self._bind)

    def queue(self, sources: Sequence[Sequence[int]], groups: Sequence[Group]) -> None:
        """Queue the encoder over `groups` of `sources`.

        This overwrites the inputs of earlier runs, so the caller must have waited for those runs.
        """
        assert all(0 <= min(source) <= max(source) < self._vocab_size for source in sources), "no such token"
        for group in groups:
            grouped = [sources[number] for number in group.numbers]
            write_padded(self._ids[group.start :], self._lengths[group.start :], grouped, group.longest, self.pad)
        self._memory.to_device()
        for group in groups:
            self._run(len(group.numbers), group.longest, group.start)()

    def close(self) -> None:
        """Drop the bindings, which refer to the graph."""
        self._run.cache_clear()

    def _bind(self, count: int, longest: int, start: int) -> Callable[[], None]:
        binding, shape, device = self.sessions.encoder.io_binding(), self.cache.shape, self.sessions.device
        ids, lengths = self._memory.address + 8 * start, self._lengths_address + 4 * start
        binding.bind_input("source_ids", device, 0, np.int64, (count, longest), ids)
        binding.bind_input("source_lengths", device, 0, np.int32, (count,), lengths)
        block = (count, shape.heads, longest, shape.head_size)  # [B, H, S, D]
        for name, pointer in zip(shape.names("cross"), self.cache.staging_pointers(start), strict=True):
            binding.bind_output(name, device, 0, self.element_type, block, pointer)
        return self.sessions.bound_run(self.sessions.encoder, binding)
