"""Rows of keys and values in a GPU's memory, in the same layout as `translane_server.runtime.cache.HostCache`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from translane_server.runtime.backend import RowMove
from translane_server.runtime.cache import CacheShape, Staged
from translane_server.runtime.cuda.kernels import Blocks, Kernels
from translane_server.runtime.cuda_runtime import CudaRuntime


class CudaCache:
    """`Cache` in the memory of a GPU. Copies are queued on the runtime's stream, in order with all other work."""

    def __init__(self, shape: CacheShape, staging_tokens: int, runtime: CudaRuntime, kernels: Kernels) -> None:
        self.shape = shape
        self._kernels = kernels
        self._self = _allocate(runtime, shape.blocks("self"), shape.dtype.itemsize)
        self._cross = _allocate(runtime, shape.blocks("cross"), shape.cross_dtype.itemsize)
        self._staged_token = shape.heads * self._cross.position_bytes
        self._staging_block = staging_tokens * self._staged_token
        self._staging = runtime.allocate(self._cross.count * self._staging_block)

    def self_pointers(self) -> list[int]:
        return _pointers(self._self.address, self._self.block_bytes, self._self.count)

    def cross_pointers(self) -> list[int]:
        return _pointers(self._cross.address, self._cross.block_bytes, self._cross.count)

    def staging_pointers(self, start: int) -> list[int]:
        return _pointers(self._staging + start * self._staged_token, self._staging_block, self._cross.count)

    def enter(self, sources: Sequence[Staged], rows: Sequence[int]) -> None:
        self._kernels.enter_rows(self._cross, self._staging, self._staging_block, sources, rows)

    def move(self, moves: Sequence[RowMove]) -> None:
        self._kernels.move_rows(self._self, self._cross, self.shape.in_blocks(moves))


def _allocate(runtime: CudaRuntime, blocks: tuple[int, int, int, int, int], itemsize: int) -> Blocks:
    count, rows, heads, capacity, size = blocks
    return Blocks(runtime.allocate(math.prod(blocks) * itemsize), count, rows, heads, capacity, size * itemsize)


def _pointers(start: int, block: int, count: int) -> list[int]:
    return [start + index * block for index in range(count)]
