"""The host's and the device's cache do the same; the device's runs here on main memory."""

import ctypes
from typing import cast
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers.cuda_on_cpu import CpuDevice, kernels_library
from translane_server.runtime.backend import RowMove
from translane_server.runtime.cache import CacheShape, HostCache, Staged
from translane_server.runtime.cuda.cache import CudaCache
from translane_server.runtime.cuda.kernels import Kernels
from translane_server.runtime.cuda.runtime import CudaRuntime

SHAPE = CacheShape(
    layers=2,
    rows=4,
    heads=3,
    head_size=8,
    source_capacity=7,
    target_capacity=5,
    dtype=np.dtype(np.float16),
    cross_dtype=np.dtype(np.int16),  # of the size that a GPU has; any bits are copied
    query_width=24,
)
STAGING_TOKENS = 20


def host():
    return HostCache(SHAPE, STAGING_TOKENS)


def device():
    memory = CpuDevice(kernels_library())
    return CudaCache(SHAPE, STAGING_TOKENS, cast(CudaRuntime, memory), Kernels(memory))


def view(pointer, dtype, *shape):
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(pointer), dtype).reshape(shape)


def self_blocks(cache):
    return [view(p, SHAPE.dtype, *SHAPE.blocks("self")[1:]) for p in cache.self_pointers()]


def cross_blocks(cache):
    return [view(p, SHAPE.cross_dtype, *SHAPE.blocks("cross")[1:]) for p in cache.cross_pointers()]


def test_names_are_in_the_order_of_the_blocks():
    assert SHAPE.names("cross") == ["cross_key_0", "cross_value_0", "cross_key_1", "cross_value_1"]


@st.composite
def runs_of_the_encoder(draw):
    """Lengths of the sources of some runs, and distinct rows for as many of the sources as there are, in any order."""
    runs = draw(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=2), min_size=1, max_size=2))
    sources = [(run, place) for run, lengths in enumerate(runs) for place in range(len(lengths))]
    entering = draw(st.permutations(sources))[: SHAPE.rows]
    return runs, entering, draw(st.permutations(range(SHAPE.rows)))[: len(entering)]


@pytest.mark.parametrize("make", [host, device])
@given(drawn=runs_of_the_encoder())
@example(drawn=([[4, 5], [2, 3]], [(0, 0), (0, 1), (1, 0), (1, 1)], [0, 1, 2, 3]))
@example(drawn=([[4, 4]], [(0, 0), (0, 1)], [2, 3]))
def test_sources_enter_the_rows_they_are_given(make, drawn):
    runs, entering, rows = drawn
    cache, random, start, places = make(), np.random.default_rng(0), 0, {}
    encoded = {}
    for run, lengths in enumerate(runs):
        longest = max(lengths)
        for block, pointer in enumerate(cache.staging_pointers(start)):
            encoded[run, block] = random.integers(-128, 128, (len(lengths), 3, longest, 8), np.int16)
            view(pointer, SHAPE.cross_dtype, len(lengths), 3, longest, 8)[:] = encoded[run, block]
        for place, length in enumerate(lengths):
            places[run, place] = Staged(start + place * longest, longest, length)
        start += len(lengths) * longest
    cache.enter([places[source] for source in entering], rows)
    for number, block in enumerate(cross_blocks(cache)):
        for (run, place), row in zip(entering, rows, strict=True):
            staged = places[run, place]
            assert np.array_equal(block[row, :, : staged.length], encoded[run, number][place, :, : staged.length])
            assert not block[row, :, staged.padded :].any()
        assert not block[[row for row in range(SHAPE.rows) if row not in rows]].any()
    assert not any(block.any() for block in self_blocks(cache))


@pytest.mark.parametrize("make", [host, device])
def test_move_copies_only_what_is_valid(make):
    cache = make()
    random = np.random.default_rng(0)
    for block in self_blocks(cache) + cross_blocks(cache):
        block[:] = random.integers(-128, 128, block.shape)
    before_self = [block.copy() for block in self_blocks(cache)]
    before_cross = [block.copy() for block in cross_blocks(cache)]
    cache.move([RowMove(3, 0, target_length=2, source_length=5), RowMove(2, 1, target_length=0, source_length=7)])
    for blocks, before, lengths in (
        (self_blocks(cache), before_self, (2, 0)),
        (cross_blocks(cache), before_cross, (5, 7)),
    ):
        for block, old in zip(blocks, before, strict=True):
            assert np.array_equal(block[2:], old[2:])
            for target, source, length in ((0, 3, lengths[0]), (1, 2, lengths[1])):
                assert np.array_equal(block[target, :, :length], old[source, :, :length])
                assert np.array_equal(block[target, :, length:], old[target, :, length:])


@st.composite
def moves(draw):
    source, *targets = draw(st.permutations(range(SHAPE.rows)))
    length = draw(st.integers(0, SHAPE.target_capacity))
    rest = length, draw(st.integers(0, SHAPE.source_capacity)), draw(st.integers(0, length))
    return [RowMove(source, target, *rest) for target in targets[: draw(st.integers(1, 3))]]


@pytest.mark.parametrize("small", [0, 1 << 20])
@pytest.mark.parametrize("make", [host, device])
@given(moves=st.lists(moves(), max_size=4).map(lambda several: [move for some in several for move in some]))
@example(moves=[RowMove(0, 1, 5, 7, 2), RowMove(0, 2, 5, 7, 2), RowMove(0, 3, 5, 7, 2), RowMove(3, 0, 4, 0)])
def test_moves_happen_one_after_another(make, moves, small):
    """Also where a row that was overwritten is a later move's source, and whichever way a block is copied."""
    cache, random = make(), np.random.default_rng(0)
    blocks = self_blocks(cache) + cross_blocks(cache)
    for block in blocks:
        block[:] = random.integers(-128, 128, block.shape)
    expected = [block.copy() for block in blocks]
    for move in moves:
        for index, block in enumerate(expected):
            own = index < len(blocks) // 2
            positions = slice(move.start, move.target_length) if own else slice(move.source_length)
            block[move.target, :, positions] = block[move.source, :, positions]
    with patch("translane_server.runtime.cache._SMALL", small):
        cache.move(moves)
    assert all(np.array_equal(block, right) for block, right in zip(blocks, expected, strict=True))
