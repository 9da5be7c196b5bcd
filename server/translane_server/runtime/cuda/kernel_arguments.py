"""The arguments of the kernels: the structures of `kernels.cu`, field by field."""

from __future__ import annotations

import ctypes
from ctypes import c_uint16, c_uint32, c_uint64
from dataclasses import dataclass

MOVES = 320  # maximum moves of a launch, as in kernels.cu
SOURCES = 240  # maximum sources of a launch, as in kernels.cu
LANE = 16  # bytes that a thread copies at once


@dataclass(frozen=True)
class Blocks:
    """Keys and values in contiguous blocks [R, H, C, D], one after the other in the device's memory.

    Attributes:
        address: address of the first block.
        count: number of blocks; every decoder layer has one block of keys and one of values.
        rows: R.
        heads: H.
        capacity: C, in positions.
        position_bytes: size of one position of one head, a multiple of 16. A half-precision head has such a size if its
            head size is a multiple of 8.
    """

    address: int
    count: int
    rows: int
    heads: int
    capacity: int
    position_bytes: int

    def __post_init__(self) -> None:
        assert self.position_bytes % LANE == self.address % LANE == 0, "threads copy 16 bytes at once"
        assert max(self.rows, self.capacity) < 1 << 16, "moves have 16-bit numbers"

    @property
    def head_bytes(self) -> int:
        """Size of a head of a row of a block."""
        return self.capacity * self.position_bytes

    @property
    def row_bytes(self) -> int:
        """Size of a row of a block."""
        return self.heads * self.head_bytes

    @property
    def block_bytes(self) -> int:
        """Size of a block."""
        return self.rows * self.row_bytes

    @property
    def lanes(self) -> int:
        """Number of 16-byte lanes of one position of one head."""
        return self.position_bytes // LANE

    @property
    def pairs(self) -> int:
        """Number of pairs of a block and a head."""
        return self.count * self.heads


class BlocksArgument(ctypes.Structure):
    """`Blocks` in kernels.cu."""

    _fields_ = (
        ("address", c_uint64),
        ("block_bytes", c_uint64),
        ("row_bytes", c_uint64),
        ("head_bytes", c_uint64),
        ("heads", c_uint32),
        ("lanes", c_uint32),
    )

    @classmethod
    def of(cls, blocks: Blocks) -> BlocksArgument:
        """Return `blocks` as an argument."""
        return cls(blocks.address, blocks.block_bytes, blocks.row_bytes, blocks.head_bytes, blocks.heads, blocks.lanes)


class Moves(ctypes.Structure):
    """`Moves` in kernels.cu."""

    _fields_ = (
        ("own", BlocksArgument),
        ("cross", BlocksArgument),
        ("own_pairs", c_uint32),
        ("first_position", c_uint32),
        ("source", c_uint16 * MOVES),
        ("target", c_uint16 * MOVES),
        ("start", c_uint16 * MOVES),
        ("end", c_uint16 * MOVES),
        ("source_length", c_uint16 * MOVES),
        ("group", c_uint16 * (MOVES + 1)),
    )


class Sources(ctypes.Structure):
    """`Sources` in kernels.cu."""

    _fields_ = (
        ("cross", BlocksArgument),
        ("staging", c_uint64),
        ("staging_block_bytes", c_uint64),
        ("start", c_uint32 * SOURCES),
        ("padded", c_uint32 * SOURCES),
        ("length", c_uint32 * SOURCES),
        ("row", c_uint32 * SOURCES),
    )


class Fed(ctypes.Structure):
    """`Fed` in kernels.cu."""

    _fields_ = (
        ("ids", c_uint64),
        ("token_ids", c_uint64),
        ("positions", c_uint64),
        ("history", c_uint64),
        ("counter", c_uint64),
        ("n", c_uint32),
        ("stride", c_uint32),
    )
