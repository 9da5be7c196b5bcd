"""CUDA kernels that copy rows of the cache, and their arguments.

`kernels.cu` holds the kernels. scripts/build-kernels compiles them to `kernels.ptx`. A kernel takes one structure by
value, so a launch needs no copy to the device. The device checks no bounds, so rows and lengths are asserted here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_uint16, c_uint32, c_uint64
from pathlib import Path

from translane_server.runtime.backend import RowMove
from translane_server.runtime.cache import Staged
from translane_server.runtime.cuda_runtime import CudaRuntime

MOVES = 320  # maximum moves of a launch, as in kernels.cu
SOURCES = 240  # maximum sources of a launch, as in kernels.cu
LANE = 16  # bytes that a thread copies at once


class Blocks(ctypes.Structure):
    """Keys and values in contiguous blocks [R, H, C, D], one after the other in the device's memory.

    A block has R rows of H heads, each with C positions (`capacity`) of D numbers. `position_bytes` is the size of one
    position of one head. It is a multiple of 16, because a thread copies 16 bytes; in half precision it is one where D
    is a multiple of 8.

    The fields are those of `Blocks` in kernels.cu, which does not have the other attributes.
    """

    _fields_ = (
        ("address", c_uint64),  # of the first block
        ("block_bytes", c_uint64),
        ("row_bytes", c_uint64),
        ("head_bytes", c_uint64),
        ("heads", c_uint32),  # H
        ("lanes", c_uint32),  # 16-byte lanes of one position of one head
    )

    def __init__(self, address: int, count: int, rows: int, heads: int, capacity: int, position_bytes: int) -> None:
        assert position_bytes % LANE == address % LANE == 0, "threads copy 16 bytes at once"
        assert max(rows, capacity) < 1 << 16, "moves have 16-bit numbers"
        head_bytes = capacity * position_bytes
        super().__init__(
            address, rows * heads * head_bytes, heads * head_bytes, head_bytes, heads, position_bytes // LANE
        )
        self.count = count  # every decoder layer has one block of keys and one of values
        self.rows, self.capacity, self.position_bytes = rows, capacity, position_bytes
        self.pairs = count * heads  # pairs of a block and a head


class Moves(ctypes.Structure):
    """`Moves` in kernels.cu."""

    _fields_ = (
        ("own", Blocks),
        ("cross", Blocks),
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
        ("cross", Blocks),
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


NAMES = ("move_rows", "enter_rows", "feed_back")

_WARP = 32
_COPYING = 128  # maximum threads of a block that copies
_FEEDING = 1024


class Kernels:
    """Prepares and launches the kernels. Every beam step prepares arguments, so the large structures are reused."""

    def __init__(self, runtime: CudaRuntime) -> None:
        self._runtime = runtime
        self._moves, self._sources = Moves(), Sources()
        self._moves.group[:] = range(len(self._moves.group))  # no move needs another one, so each is a group

    def move_rows(self, own: Blocks, cross: Blocks, moves: Sequence[RowMove]) -> None:
        """Copy rows over other rows in every block. A launch takes up to 320 moves.

        `own` has self-attention's keys and values of decoded positions, `cross` has cross-attention's of encoded ones.
        """
        sources, targets = {move.source for move in moves}, {move.target for move in moves}
        assert len(targets) == len(moves), "a row is a target twice"
        assert targets.isdisjoint(sources), "a row is both source and target"
        for first in range(0, len(moves), MOVES):
            self._move_rows(own, cross, moves[first : first + MOVES])

    def _move_rows(self, own: Blocks, cross: Blocks, moves: Sequence[RowMove]) -> None:
        sources, targets, ends, source_lengths, starts = zip(*moves, strict=True)
        assert min(*sources, *targets) >= 0, "no such row"
        assert max(*sources, *targets) < min(own.rows, cross.rows), "no such row"
        first, end, source_length = min(starts), max(ends), max(source_lengths)
        assert min(first, *ends, *source_lengths) >= 0, "no such position"
        assert max(end, *starts) <= own.capacity, "more positions than a row has"
        assert source_length <= cross.capacity, "more positions than a row has"
        own_lanes, cross_lanes = max(0, end - first) * own.lanes, source_length * cross.lanes
        own_pairs, cross_pairs = own.pairs if own_lanes else 0, cross.pairs if cross_lanes else 0
        if not own_pairs and not cross_pairs:
            return
        argument, n = self._moves, len(moves)
        argument.own, argument.cross = own, cross
        argument.own_pairs, argument.first_position = own_pairs, first
        argument.source[:n], argument.target[:n] = sources, targets
        argument.start[:n], argument.end[:n], argument.source_length[:n] = starts, ends, source_lengths
        lanes, pairs = max(own_lanes, cross_lanes), own_pairs + cross_pairs
        self._copy("move_rows", lanes, pairs, n, argument)

    def enter_rows(
        self,
        cross: Blocks,
        staging_address: int,
        staging_block_bytes: int,
        sources: Sequence[Staged],
        rows: Sequence[int],
    ) -> None:
        """Copy the valid positions of encoded sources into rows, all different. A launch takes up to 240 sources.

        Each block of `cross`, the keys and values of cross-attention, has a staging block of so many bytes. The first
        one is at `staging_address`, and each source lies at the same place in all of them.
        """
        assert len(sources) == len(rows) == len(set(rows)), "a row of its own for each source"
        assert staging_address % LANE == staging_block_bytes % LANE == 0, "threads copy 16 bytes at once"
        tokens = staging_block_bytes // (cross.heads * cross.position_bytes)
        for source, row in zip(sources, rows, strict=True):
            assert 0 <= row < cross.rows, "no such row"
            assert 0 <= source.length <= min(source.padded, cross.capacity), "more positions than a row has"
            assert 0 <= source.start <= tokens - source.padded, "beyond the staging block"
        argument = self._sources
        argument.cross = cross
        argument.staging, argument.staging_block_bytes = staging_address, staging_block_bytes
        for first in range(0, len(sources), SOURCES):
            starts, padded, lengths = zip(*sources[first : first + SOURCES], strict=True)
            n, longest = len(starts), max(lengths)
            argument.start[:n], argument.padded[:n], argument.length[:n] = starts, padded, lengths
            argument.row[:n] = rows[first : first + n]
            if longest:
                self._copy("enter_rows", longest * cross.lanes, cross.pairs, n, argument)

    def feed_back(
        self, *, ids: int, token_ids: int, positions: int, history: int, counter: int, n: int, stride: int
    ) -> None:
        """Feed the first n rows the tokens that a greedy step chose, and count the step. Can be captured in a graph.

        Args:
            ids: address of the chosen tokens, int64 [n].
            token_ids: address of the next step's tokens, int64 [n].
            positions: address of the rows' positions, int32 [n]; each grows by 1.
            history: address of the chosen tokens of all steps, int64 [steps, stride]. This step writes line `counter`.
            counter: address of the number of earlier steps, int32 [1]; it grows by 1.
            n: number of rows.
            stride: length of a line of `history`, at least n.
        """
        assert 0 < n <= stride, "more rows than a line of the history has"
        argument = Fed(ids, token_ids, positions, history, counter, n, stride)
        self._runtime.launch("feed_back", (1, 1, 1), (_threads(n, _FEEDING), 1, 1), (argument,))

    def _copy(self, name: str, lanes: int, pairs: int, parts: int, argument: ctypes.Structure) -> None:
        threads = _threads(lanes, _COPYING)
        self._runtime.launch(name, (-(-lanes // threads), pairs, parts), (threads, 1, 1), (argument,))


def load_ptx() -> bytes:
    """Return the kernels' code for cuModuleLoadData. The code ends with a zero byte."""
    return Path(__file__).with_name("kernels.ptx").read_bytes() + b"\0"


def _threads(wanted: int, most: int) -> int:
    return min(most, -(-wanted // _WARP) * _WARP)
