"""Rows of keys and values in a GPU's memory, copied by the CUDA runtime.

onnxruntime's CUDA provider loads the CUDA runtime; this reaches the same library for the one thing onnxruntime has no
call for, copying part of a tensor inside the device's memory (cudaMemcpy2DAsync,
https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__MEMORY.html).

onnxruntime works on a stream of its own, which does not wait for the default one that copies: a run has ended when
`run_with_iobinding` returns, and copies have ended when `store` and `move` return. Neither holds with CUDA graphs or a
caller's stream, which this server does not use.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Protocol

from translane_server.backend import RowMove
from translane_server.cache import CacheShape, Staged
from translane_server.errors import DeviceError

_LIBRARIES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so")
_DEVICE_TO_DEVICE = 3


class DeviceMemory(Protocol):
    """Memory that is only addressed here, never read or written."""

    def allocate(self, size: int) -> int:
        """Reserve and zero `size` bytes; return their address."""

    def free(self, address: int) -> None:
        """Release what `allocate` returned."""

    def copy_2d(self, target: int, target_pitch: int, source: int, source_pitch: int, width: int, height: int) -> None:
        """Copy `height` lines of `width` bytes that start `*_pitch` bytes apart; may return before it is done."""

    def synchronize(self) -> None:
        """Wait until all copies are done."""


class CudaMemory:
    """The memory of the current CUDA device."""

    def __init__(self) -> None:
        self._runtime = _load_runtime()
        size_t, pointer = ctypes.c_size_t, ctypes.c_void_p
        self._runtime.cudaMalloc.argtypes = [ctypes.POINTER(pointer), size_t]
        self._runtime.cudaMemset.argtypes = [pointer, ctypes.c_int, size_t]
        self._runtime.cudaFree.argtypes = [pointer]
        self._runtime.cudaMemcpy2DAsync.argtypes = [
            pointer, size_t, pointer, size_t, size_t, size_t, ctypes.c_int, pointer,
        ]  # fmt: skip
        self._runtime.cudaGetErrorString.restype = ctypes.c_char_p

    def allocate(self, size: int) -> int:
        """See `DeviceMemory.allocate`."""
        address = ctypes.c_void_p()
        self._check(self._runtime.cudaMalloc(ctypes.byref(address), size), f"cannot reserve {size >> 20} MiB")
        assert address.value is not None
        self._check(self._runtime.cudaMemset(address, 0, size), "cannot clear memory")
        return address.value

    def free(self, address: int) -> None:
        """See `DeviceMemory.free`."""
        self._check(self._runtime.cudaFree(address), "cannot release memory")

    def copy_2d(self, target: int, target_pitch: int, source: int, source_pitch: int, width: int, height: int) -> None:
        """See `DeviceMemory.copy_2d`."""
        status = self._runtime.cudaMemcpy2DAsync(
            target, target_pitch, source, source_pitch, width, height, _DEVICE_TO_DEVICE, None
        )
        self._check(status, "cannot copy rows")

    def synchronize(self) -> None:
        """See `DeviceMemory.synchronize`."""
        self._check(self._runtime.cudaStreamSynchronize(None), "copying rows failed")

    def _check(self, status: int, what: str) -> None:
        if status:
            raise DeviceError(f"CUDA: {what}: {self._runtime.cudaGetErrorString(status).decode()}")


class CudaCache:
    """Rows in device memory; the same layout as `HostCache`."""

    def __init__(self, shape: CacheShape, staging_tokens: int, memory: DeviceMemory) -> None:
        self.shape = shape
        self._memory = memory
        # Bytes of one head of one position, of one row, and of one block.
        self._self_item = shape.head_size * shape.dtype.itemsize
        self._cross_item = shape.head_size * shape.cross_dtype.itemsize
        self._self_head = shape.target_capacity * self._self_item
        self._cross_head = shape.source_capacity * self._cross_item
        self._self_block = shape.rows * shape.heads * self._self_head
        self._cross_block = shape.rows * shape.heads * self._cross_head
        self._staged_token = shape.heads * self._cross_item
        self._staging_block = staging_tokens * self._staged_token
        self._self = memory.allocate(2 * shape.layers * self._self_block)
        self._cross = memory.allocate(2 * shape.layers * self._cross_block)
        self._staging = memory.allocate(2 * shape.layers * self._staging_block)
        memory.synchronize()  # zeroing is done before anyone on another stream writes

    def self_pointers(self) -> list[int]:
        """See `Cache.self_pointers`."""
        return self._pointers(self._self, self._self_block)

    def cross_pointers(self) -> list[int]:
        """See `Cache.cross_pointers`."""
        return self._pointers(self._cross, self._cross_block)

    def staging_pointers(self, start: int) -> list[int]:
        """See `Cache.staging_pointers`."""
        return self._pointers(self._staging + start * self._staged_token, self._staging_block)

    def enter(self, sources: Sequence[Staged], rows: Sequence[int]) -> None:
        """See `Cache.enter`."""
        heads = self.shape.heads
        blocks = self.cross_pointers()
        staging = self.staging_pointers(0)
        for first, row, count in _neighbours(sources, rows):
            # Neighbouring rows and their heads are evenly spaced in both: one copy of so many lines.
            offset, pitch = first.start * self._staged_token, first.padded * self._cross_item
            for block, staged in zip(blocks, staging, strict=True):
                target = block + row * heads * self._cross_head
                self._memory.copy_2d(target, self._cross_head, staged + offset, pitch, pitch, count * heads)
        self._memory.synchronize()

    def move(self, moves: Sequence[RowMove]) -> None:
        """See `Cache.move`."""
        own, cross = self.self_pointers(), self.cross_pointers()
        for move in moves:
            start, length = move.start * self._self_item, (move.target_length - move.start) * self._self_item
            self._move(own, self._self_head, move, start, length)
            self._move(cross, self._cross_head, move, 0, move.source_length * self._cross_item)
        self._memory.synchronize()

    def close(self) -> None:
        """Release the memory."""
        for address in (self._self, self._cross, self._staging):
            self._memory.free(address)

    def _move(self, blocks: list[int], head: int, move: RowMove, start: int, width: int) -> None:
        row = self.shape.heads * head
        if width:
            for block in blocks:
                source, target = block + move.source * row + start, block + move.target * row + start
                self._memory.copy_2d(target, head, source, head, width, self.shape.heads)

    def _pointers(self, start: int, block: int) -> list[int]:
        return [start + index * block for index in range(2 * self.shape.layers)]


def _neighbours(sources: Sequence[Staged], rows: Sequence[int]) -> list[tuple[Staged, int, int]]:
    """Sources that lie one after the other, and enter rows that do: the first one, its row, and how many they are."""
    runs: list[tuple[Staged, int, int]] = []
    for source, row in zip(sources, rows, strict=True):
        if runs:
            first, first_row, count = runs[-1]
            beside = source.start == first.start + count * first.padded and source.padded == first.padded
            if beside and row == first_row + count:
                runs[-1] = first, first_row, count + 1
                continue
        runs.append((source, row, 1))
    return runs


def _load_runtime() -> ctypes.CDLL:
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise DeviceError(f"the CUDA runtime library is not installed (looked for {', '.join(_LIBRARIES)})")
