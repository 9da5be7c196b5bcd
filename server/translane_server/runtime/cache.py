"""The keys and values of all rows: their layout in memory, and copies of one row over another.

Every layer and kind (self or cross, key or value) has one contiguous block [R, H, C, D]. So the first n rows of a block
are one tensor of a graph. `HostCache` keeps the blocks in main memory, `CudaCache` keeps them in the memory of a GPU.

A decoder with a recurrent unit has cells in place of self-attention's keys and values: one block [R, 1, 2, M] for each
layer, with the cell of position p at p mod 2.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from translane_server.runtime.backend import RowMove


@dataclass(frozen=True, slots=True)
class CacheShape:
    """Sizes of the rows' memory: N decoder layers, R rows, H heads, D head size, and the two capacities C.

    H is the number of heads that keys and values have. A query has `query_width` numbers, those of all its heads.
    `dtype` is the type of self-attention's keys and values. `cross_dtype` is the type of cross-attention's. With a
    `cell_size`, M, the decoder has a recurrent unit in place of self-attention.
    """

    layers: int
    rows: int
    heads: int
    head_size: int
    source_capacity: int
    target_capacity: int
    dtype: np.dtype[np.generic]
    cross_dtype: np.dtype[np.generic]
    query_width: int
    cell_size: int = 0

    def names(self, kind: str) -> list[str]:
        """Names of the tensors of a `kind` ("self" or "cross"), in the order of their blocks."""
        parts = ("state",) if kind == "self" and self.cell_size else ("key", "value")
        return [f"{kind}_{part}_{layer}" for layer, part in itertools.product(range(self.layers), parts)]

    def of_row(self, kind: str) -> tuple[int, int, int]:
        """Shape of a row in a block of a kind: [H, C, D]."""
        if kind == "cross":
            return self.heads, self.source_capacity, self.head_size
        return (1, 2, self.cell_size) if self.cell_size else (self.heads, self.target_capacity, self.head_size)

    def blocks(self, kind: str) -> tuple[int, int, int, int, int]:
        """Shape of all blocks of one kind: [2N, R, H, C, D]; [N, R, 1, 2, M] for cells."""
        return (len(self.names(kind)), self.rows, *self.of_row(kind))

    def in_blocks(self, moves: Sequence[RowMove]) -> Sequence[RowMove]:
        """Return the moves with positions in blocks: of cells, those of the last position stand for all."""
        if not self.cell_size:
            return moves
        return [
            move._replace(start=last % 2, target_length=last % 2 + (last >= move.start))
            for move in moves
            for last in (move.target_length - 1,)
        ]


class Staged(NamedTuple):
    """Where the encoder left a source's keys and values: in every staging block, [H, `padded`, D] from `start` on.

    `start` is a number of tokens. The first `length` of the `padded` positions are valid.
    """

    start: int
    padded: int
    length: int


_SMALL = 1 << 15  # bytes; up to this size, a copy through a temporary array is as fast as a copy block by block


class Cache(Protocol):
    """Rows of keys and values in some memory."""

    shape: CacheShape

    def self_pointers(self) -> list[int]:
        """Addresses of the self-attention blocks, as `shape.names("self")` orders them."""

    def cross_pointers(self) -> list[int]:
        """Addresses of the cross-attention blocks, as `shape.names("cross")` orders them."""

    def staging_pointers(self, start: int) -> list[int]:
        """Addresses that the encoder writes [B, H, S, D] to: one for each cross-attention block.

        Each address is `start` tokens after the start of a staging block.
        """

    def enter(self, sources: Sequence[Staged], rows: Sequence[int]) -> None:
        """Copy the valid positions of each source into its row."""

    def move(self, moves: Sequence[RowMove]) -> None:
        """Copy the valid positions of rows over other rows. No row is a target twice, or both source and target."""


class HostCache:
    """`Cache` in main memory, of which a process has the pages that tokens have used: most sentences are short."""

    def __init__(self, shape: CacheShape, staging_tokens: int) -> None:
        self.shape = shape
        self._token = shape.heads * shape.head_size  # numbers of a token in a block
        self._self = _unused_memory(shape.blocks("self"), shape.dtype)
        self._cross = _unused_memory(shape.blocks("cross"), shape.cross_dtype)
        self._staging = _unused_memory((2 * shape.layers, staging_tokens * self._token), shape.cross_dtype)

    def self_pointers(self) -> list[int]:
        return _block_pointers(self._self)

    def cross_pointers(self) -> list[int]:
        return _block_pointers(self._cross)

    def cross_keys(self, layer: int) -> npt.NDArray[np.generic]:
        """Cross-attention's keys of a layer, [R, H, C, D]."""
        keys: npt.NDArray[np.generic] = self._cross[self.shape.names("cross").index(f"cross_key_{layer}")]
        return keys

    def staging_pointers(self, start: int) -> list[int]:
        offset = start * self._token * self.shape.cross_dtype.itemsize
        return [pointer + offset for pointer in _block_pointers(self._staging)]

    def enter(self, sources: Sequence[Staged], rows: Sequence[int]) -> None:
        blocks, heads, head_size = len(self._staging), self.shape.heads, self.shape.head_size
        for (start, padded, length), row in zip(sources, rows, strict=True):
            staged = self._staging[:, start * self._token : (start + padded) * self._token]
            staged = staged.reshape(blocks, heads, padded, head_size)  # [2N, H, S, D]
            self._cross[:, row, :, :length] = staged[:, :, :length]

    def move(self, moves: Sequence[RowMove]) -> None:
        for move, targets in _together(self.shape.in_blocks(moves)):
            _copy_row(self._self, move.source, targets, slice(move.start, move.target_length))
            if move.source_length:
                _copy_row(self._cross, move.source, targets, slice(move.source_length))


def _unused_memory(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    """Return an array of zeros in small pages: NumPy's own are of 2 MiB, with several rows in each, used or not."""
    pages = mmap.mmap(-1, max(1, math.prod(shape) * dtype.itemsize), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without large pages
            pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, dtype, math.prod(shape)).reshape(shape)


def _together(moves: Sequence[RowMove]) -> list[tuple[RowMove, slice]]:
    """Merge moves that copy the same positions to neighbouring rows. Return each move with the rows that it fills."""
    together: list[tuple[RowMove, slice]] = []
    for move in moves:
        if together:
            first, targets = together[-1]
            if move.target == targets.stop and move == first._replace(target=move.target):
                together[-1] = first, slice(targets.start, targets.stop + 1)
                continue
        together.append((move, slice(move.target, move.target + 1)))
    return together


def _copy_row(blocks: npt.NDArray[np.generic], source: int, targets: slice, positions: slice) -> None:
    """Copy some positions of row `source` to the rows `targets`, in every block of [2N, R, H, C, D].

    NumPy compares only where two arrays begin and end. The rows of several blocks interleave, so NumPy takes them for
    overlapping arrays and copies through a temporary array. A large copy goes block by block to avoid this array.
    """
    copied = blocks[:, source : source + 1, :, positions]
    if copied.nbytes <= _SMALL:
        blocks[:, targets, :, positions] = copied
        return
    for block, row in zip(blocks, copied, strict=True):
        block[targets, :, positions] = row


def _block_pointers(blocks: npt.NDArray[np.generic]) -> list[int]:
    return [block.ctypes.data for block in blocks]
