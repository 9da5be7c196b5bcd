"""Rows of the running batch: where sources enter and move, and which lists they have."""

import ctypes
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers.row_moves import moves
from translane_server.runtime.backend import RowMove, StepNeeds
from translane_server.runtime.buffers import StepBuffers
from translane_server.runtime.cache import CacheShape, HostCache
from translane_server.runtime.graph_backend import group_sources
from translane_server.runtime.shortlist_step import RowShortlists, log_normalisers

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


CELLS = replace(SHAPE, cell_size=16)


def view(pointer, dtype, *shape):
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(pointer), dtype).reshape(shape)


def blocks_of(cache):
    """The blocks of self-attention, and those of cross-attention."""
    shape = cache.shape
    own = [view(p, shape.dtype, *shape.blocks("self")[1:]) for p in cache.self_pointers()]
    return own, [view(p, shape.cross_dtype, *shape.blocks("cross")[1:]) for p in cache.cross_pointers()]


@pytest.mark.parametrize(("shape", "small"), [(SHAPE, 0), (SHAPE, 1 << 20), (CELLS, 1 << 20)])
@given(moves=moves(SHAPE))
@example(moves=[RowMove(0, 1, 5, 7, 2), RowMove(0, 2, 5, 7, 2), RowMove(0, 3, 5, 7, 2)])
@example(moves=[RowMove(0, 1, 5, 7, 2), RowMove(0, 2, 5, 7, 2), RowMove(0, 3, 2, 0, 2)])
def test_rows_are_copied_over_others(moves, shape, small):
    """Whichever way a block is copied.

    Of cells, a row gets that of the last position, unless all positions are the same already: then the cell is, too.
    """
    cache, random = HostCache(shape, STAGING_TOKENS), np.random.default_rng(0)
    own, cross = blocks_of(cache)
    for block in own + cross:
        block[:] = random.integers(-128, 128, block.shape)
    own_expected, cross_expected = [block.copy() for block in own], [block.copy() for block in cross]
    for move in moves:
        positions = slice(move.start, move.target_length)
        if shape.cell_size and move.start < move.target_length:
            place = (move.target_length - 1) % 2
            positions = slice(place, place + 1)
        for block in own_expected:
            block[move.target, :, positions] = block[move.source, :, positions]
        for block in cross_expected:
            block[move.target, :, : move.source_length] = block[move.source, :, : move.source_length]
    with patch("translane_server.runtime.cache._SMALL", small):
        cache.move(moves)
    assert all(np.array_equal(*pair) for pair in zip(own + cross, own_expected + cross_expected, strict=True))


# The lists of rows are joined so that no row's results depend on another row's list.


VOCABULARY = 5000


@pytest.fixture
def draw():
    return np.random.default_rng(0)


def lists_of(draw, rows, size):
    return [np.sort(draw.choice(VOCABULARY, size, replace=False)) for _ in range(rows)]


def test_a_join_is_made_again_only_where_lists_change(draw):
    lists = RowShortlists(8, VOCABULARY, threads=1)
    own = lists_of(draw, 3, 20)
    for row, tokens in enumerate(own):
        lists.set(row, tokens)
    assert lists.join(3, 1)
    assert not lists.join(3, 1)
    assert lists.join(2, 1)
    lists.move(0, 1)
    assert lists.join(2, 1)
    lists.move(0, 1)  # beams of a sentence have the same list
    assert not lists.join(2, 1)
    assert not lists.join(2, 256)
    assert lists.join(2, 257)
    assert len(lists.tokens) == 512


def test_padding_is_of_tokens_that_no_row_may_use():
    """More candidates are asked for than the rows have tokens, and a rule looks at the logit of each."""
    lists = RowShortlists(2, 600, threads=1)
    lists.set(0, np.array([5, 9]))
    lists.set(1, np.array([0, 9]))
    lists.join(2, 300)
    assert lists.tokens[: lists.used].tolist() == [0, 5, 9]
    assert len(set(lists.tokens.tolist())) == len(lists.tokens) == 512


def test_every_thread_has_many_columns():
    lists = RowShortlists(1, VOCABULARY, threads=16)
    lists.set(0, np.array([1, 2]))
    lists.join(1, 1)
    assert len(lists.tokens) >= 128 * 16


@pytest.mark.parametrize("scale", [0.1, 1, 10, 60])
def test_normalisers_do_not_depend_on_what_else_there_is(draw, scale):
    """Bit for bit: whatever tokens of -inf are between a row's own, and wherever its own are."""
    own = (draw.standard_normal((6, 400)) * scale).astype(np.float32)
    alone = log_normalisers(own)
    expected = np.log(np.exp(own.astype(np.float64) - own.max()).sum(axis=1)) + own.max()
    np.testing.assert_allclose(alone, expected, atol=1e-5, rtol=1e-6)
    for size in (401, 512, 1023, 4096):
        places = draw.choice(size, 400, replace=False)
        joined = np.full((6, size), -np.inf, np.float32)
        joined[:, places] = own
        assert log_normalisers(joined).tobytes() == alone.tobytes()
        for row in range(6):
            assert log_normalisers(joined[row : row + 1]).tobytes() == alone[row : row + 1].tobytes()


@given(st.lists(st.integers(1, 20), min_size=1, max_size=40), st.integers(20, 2000), st.integers(0, 50))
@example(lengths=[20, 1, 20, 1, 20, 1], capacity=130, run_cost=0)
def test_groups_hold_the_first_sources_beside_each_other(lengths, capacity, run_cost):
    groups = group_sources(lengths, capacity, run_cost)
    numbers = sorted(number for group in groups for number in group.numbers)
    assert numbers == list(range(len(numbers)))
    end = 0
    for group in groups:
        assert group.longest == max(lengths[number] for number in group.numbers)
        assert end <= group.start
        end = group.start + len(group.numbers) * group.longest
        assert end <= capacity
        assert sum(group.longest - lengths[number] for number in group.numbers) <= run_cost


@pytest.mark.parametrize(
    ("lengths", "capacity", "run_cost", "groups"),
    [
        ([7] * 5, 35, 0, [([0, 1, 2, 3, 4], 7)]),
        ([9, 9], 9, 0, [([0], 9)]),
        ([4, 19, 5, 20, 4], 1000, 6, [([1, 3], 20), ([0, 2, 4], 5)]),
        ([4, 19, 5], 1000, 1 << 30, [([0, 1, 2], 19)]),
        ([200] * 60, 2048, 6, [([*range(10)], 200)]),
    ],
    ids=["all have room", "one at least", "similar lengths go together", "where runs are dear", "the room is used"],
)
def test_groups(lengths, capacity, run_cost, groups):
    assert [(group.numbers, group.longest) for group in group_sources(lengths, capacity, run_cost)] == groups


def test_of_equal_logits_the_lowest_token_is_best():
    buffers = StepBuffers(3, 5)
    buffers.reserve(StepNeeds(log_probs=False))
    logits = buffers.read(2, StepNeeds(log_probs=False, logits=True)).logits
    assert logits is not None

    def run():
        logits[:] = [[0, -np.inf, 7, 7, 1], [-np.inf, -np.inf, -np.inf, -3, -3]]

    buffers.finding_best(run, 2)()
    assert buffers.best_tokens(2) == [2, 3]
    assert buffers.read(2, StepNeeds(log_probs=False)).token_ids.tolist() == [[2], [3]]
