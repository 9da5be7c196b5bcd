"""The kernels do what HostCache does. Here they run on the CPU, compiled from the source that the PTX is made of."""

import ctypes
import hashlib
import math
import re
from dataclasses import replace
from typing import cast
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.cuda_on_cpu import SOURCE, CpuDevice, kernels_library
from helpers.row_moves import moves
from translane_server.runtime.backend import RowMove
from translane_server.runtime.cache import CacheShape, HostCache, Staged
from translane_server.runtime.cuda import kernels as kernels_module
from translane_server.runtime.cuda.cache import CudaCache
from translane_server.runtime.cuda.kernels import MOVES, NAMES, SOURCES, Blocks, Kernels, load_ptx
from translane_server.runtime.cuda_runtime import CudaRuntime

SHAPE = CacheShape(
    layers=1,
    rows=6,
    heads=2,
    head_size=24,  # three lanes of 16 bytes
    source_capacity=45,  # a row has more lanes than a block has threads
    target_capacity=50,
    dtype=np.dtype(np.float16),
    cross_dtype=np.dtype(np.float16),
    query_width=48,
)
CELLS = replace(SHAPE, cell_size=48)
WIDE = CacheShape(1, 1000, 1, 8, 2, 3, np.dtype(np.float16), np.dtype(np.float16), 8)
STAGING_TOKENS = 150


@pytest.fixture(scope="module")
def library():
    return kernels_library()


class Rows:
    """Rows of a CudaCache and the same rows of a HostCache: random numbers everywhere."""

    def __init__(self, library, shape=SHAPE):
        self.device, random = CpuDevice(library), np.random.default_rng(0)
        runtime = cast(CudaRuntime, self.device)
        self.cache = CudaCache(shape, STAGING_TOKENS, runtime, Kernels(runtime))
        self.host = HostCache(shape, STAGING_TOKENS)
        staging = (2 * shape.layers, STAGING_TOKENS * shape.heads * shape.head_size)
        self.memory = []
        for name, size in (("self", shape.blocks("self")), ("cross", shape.blocks("cross")), ("staging", staging)):
            start = (0,) if name == "staging" else ()
            addresses = [getattr(cache, f"{name}_pointers")(*start)[0] for cache in (self.cache, self.host)]
            ours, theirs = [
                np.ctypeslib.as_array((ctypes.c_uint16 * math.prod(size)).from_address(a)) for a in addresses
            ]
            ours[:] = theirs[:] = random.integers(0, 1 << 16, math.prod(size))
            self.memory.append((ours, theirs))

    def move(self, moves):
        self.host.move(moves)
        self.cache.move(moves)

    def enter(self, sources, rows):
        self.host.enter(sources, rows)
        self.cache.enter(sources, rows)

    def are_equal(self):
        """Whether the device and the host hold the same rows, to the last byte."""
        return all(np.array_equal(*pair) for pair in self.memory)


@pytest.mark.parametrize(("shape", "at_once"), [(SHAPE, 2), (SHAPE, MOVES), (CELLS, MOVES)])
@given(moves=moves(SHAPE))
@example(moves=[RowMove(0, row, 43, 44) for row in (3, 1, 2, 5, 4)])
@example(moves=[RowMove(0, 1, 50, 0, 49), RowMove(2, 3, 50, 20, 48)])  # far from the first position
@example(moves=[RowMove(0, 1, 0, 0), RowMove(2, 3, 0, 0)])
def test_rows_are_copied_over_others(library, shape, at_once, moves):
    rows = Rows(library, shape)
    with patch.object(kernels_module, "MOVES", at_once):
        rows.move(moves)
    assert rows.are_equal()


def test_moves_take_one_launch_up_to_the_most_there_are(library):
    rows, shuffled = Rows(library, WIDE), np.random.default_rng(2).permutation(WIDE.rows).tolist()
    for count, launches in ((MOVES, 1), (MOVES + 1, 3)):
        rows.move([RowMove(*pair, 3, 2) for pair in zip(shuffled[:count], shuffled[-count:], strict=True)])
        assert rows.device.launches == ["move_rows"] * launches
    assert rows.are_equal()


@pytest.mark.parametrize("moves", [[], [RowMove(0, 1, 0, 0)], [RowMove(0, 1, 4, 0, 4), RowMove(2, 3, 4, 0, 4)]])
def test_moves_that_copy_nothing_launch_nothing(library, moves):
    rows = Rows(library)
    rows.move(moves)
    assert rows.device.launches == []
    assert rows.are_equal()


@pytest.mark.parametrize(
    "move",
    [
        RowMove(6, 0, 1, 0),
        RowMove(0, 6, 1, 0),
        RowMove(-1, 0, 1, 0),
        RowMove(0, -1, 1, 0),
        RowMove(0, 1, 51, 0),
        RowMove(0, 1, 1, 46),
        RowMove(0, 1, 1, -1),
        RowMove(0, 1, 1, 0, -1),
    ],
)
def test_moves_beyond_the_rows_are_refused(library, move):
    rows = Rows(library)
    with pytest.raises(AssertionError, match=r"no such|more positions"):
        rows.cache.move([RowMove(2, 3, 1, 1), move])
    assert rows.device.launches == []


@pytest.mark.parametrize("pairs", [[(0, 3), (1, 3)], [(0, 1), (1, 2)], [(1, 2), (0, 1)], [(2, 2)]])
def test_a_row_that_is_a_target_twice_or_both_source_and_target_is_refused(library, pairs):
    """Also where the two moves are in different launches."""
    rows = Rows(library)
    with patch.object(kernels_module, "MOVES", 1), pytest.raises(AssertionError, match="target"):
        rows.cache.move([RowMove(source, target, 1, 1) for source, target in pairs])
    assert rows.device.launches == []


@st.composite
def entering(draw, most=SHAPE.rows):
    """Sources of some runs of the encoder, each as long as its longest source, and a row for each, in any order."""
    sources, start = [], 0
    for lengths in draw(st.lists(st.lists(st.integers(0, 25), min_size=1, max_size=3), max_size=2)):
        padded = max(lengths)
        sources += [Staged(start + place * padded, padded, length) for place, length in enumerate(lengths)]
        start += len(lengths) * padded
    entering = draw(st.permutations(sources))[:most]
    return entering, draw(st.permutations(range(SHAPE.rows)))[: len(entering)]


@pytest.mark.parametrize("at_once", [2, SOURCES])
@given(drawn=entering())
@example(drawn=([Staged(0, 45, 45), Staged(45, 45, 1), Staged(105, 45, 43)], [5, 0, 2]))
@example(drawn=([Staged(3, 4, 0)], [1]))
def test_sources_enter_the_rows_they_are_given(library, at_once, drawn):
    rows = Rows(library)
    with patch.object(kernels_module, "SOURCES", at_once):
        rows.enter(*drawn)
    assert rows.are_equal()


def test_sources_enter_in_one_launch_up_to_the_most_there_are(library):
    rows = Rows(library, WIDE)
    sources = [Staged(number % 149, 2, 1 + number % 2) for number in range(SOURCES + 1)]
    rows.enter(sources[1:], list(range(999, 999 - SOURCES, -1)))
    assert rows.device.launches == ["enter_rows"]
    rows.enter(sources, list(range(SOURCES + 1)))
    assert rows.device.launches == ["enter_rows"] * 3
    assert rows.are_equal()


@pytest.mark.parametrize(
    ("sources", "rows"),
    [
        ([Staged(0, 5, 5), Staged(5, 5, 5)], [1, 1]),
        ([Staged(0, 5, 5)], [6]),
        ([Staged(0, 5, 5)], [-1]),
        ([Staged(0, 5, 6)], [0]),
        ([Staged(0, 46, 46)], [0]),
        ([Staged(146, 5, 5)], [0]),
        ([Staged(-1, 5, 5)], [0]),
        ([Staged(0, 5, 5)], []),
    ],
)
def test_sources_beyond_the_rows_or_the_staging_blocks_are_refused(library, sources, rows):
    there = Rows(library)
    with pytest.raises(AssertionError, match=r"row|staging"):
        there.cache.enter(sources, rows)
    assert there.device.launches == []


class Feeding:
    """What `feed_back` reads and writes, with room for more rows than it is told of."""

    def __init__(self, library, rows, seed=0):
        self.device, random = CpuDevice(library, seed), np.random.default_rng(seed)
        self.rows, steps = rows, 5
        self.ids = self._array(np.int64, rows)
        self.token_ids = self._array(np.int64, rows)
        self.positions = self._array(np.int32, rows)
        self.history = self._array(np.int64, steps, rows)
        self.counter = self._array(np.int32, 2)
        self.token_ids[:] = random.integers(1 << 40, size=rows)
        self.positions[:] = random.integers(500, size=rows)
        self.history[:] = -1

    def _array(self, dtype, *shape):
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self.device.view(self.device.allocate(size), dtype, *shape)

    def feed(self, n):
        names = ("ids", "token_ids", "positions", "history", "counter")
        addresses = {name: getattr(self, name).ctypes.data for name in names}
        Kernels(cast(CudaRuntime, self.device)).feed_back(**addresses, n=n, stride=self.rows)


@settings(max_examples=30)
@given(n=st.integers(1, 70), seed=st.integers(0, 1000))
@example(n=3000, seed=0)  # more rows than a block has threads
def test_the_chosen_tokens_are_fed_back_step_after_step(library, n, seed):
    fed, random = Feeding(library, n + 3, seed), np.random.default_rng(seed)
    token_ids, positions, history = fed.token_ids.copy(), fed.positions.copy(), fed.history.copy()
    for step in range(4):
        fed.ids[:] = random.integers(1 << 40, size=n + 3)
        fed.feed(n)
        token_ids[:n], history[step, :n] = fed.ids[:n], fed.ids[:n]
        positions[:n] += 1
        assert np.array_equal(fed.token_ids, token_ids)
        assert np.array_equal(fed.positions, positions)
        assert np.array_equal(fed.history, history)
        assert fed.counter.tolist() == [step + 1, 0]


def test_more_rows_than_a_line_of_the_history_are_refused(library):
    with pytest.raises(AssertionError, match="history"):
        Feeding(library, 4).feed(5)


def test_blocks_that_lanes_do_not_divide_are_refused():
    for address, position_bytes in ((64, 24), (72, 32)):
        with pytest.raises(AssertionError, match="16 bytes"):
            Blocks(address, 2, 4, 2, 8, position_bytes)


def test_the_compiled_kernels_are_those_of_the_source():
    """Where this fails, run scripts/build-kernels."""
    assert hashlib.sha256(SOURCE.read_bytes()).hexdigest() in load_ptx().decode()


def test_the_compiled_kernels_load_on_every_gpu_from_turing_on_and_copy_16_bytes_at_once():
    ptx = load_ptx()
    assert ptx.endswith(b"\0")
    assert ptx.count(b"\0") == 1
    code = ptx.decode()
    assert re.findall(r"\.visible \.entry (\w+)", code) == list(NAMES)
    assert ".target sm_75\n" in code
    assert ".version 9.0\n" in code  # which drivers for CUDA 13.0 read
    assert ".local" not in code, "they copy their arguments nowhere"
    assert "ld.global.v4.u32" in code
    assert "st.global.v4.u32" in code
