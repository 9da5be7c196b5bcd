"""The lists of rows are joined so that no row's results depend on another row's list."""

import numpy as np
import pytest

from translane_server.runtime.shortlist_step import RowShortlists, log_normalisers

VOCABULARY = 5000


@pytest.fixture
def draw():
    return np.random.default_rng(0)


def lists_of(draw, rows, size):
    return [np.sort(draw.choice(VOCABULARY, size, replace=False)) for _ in range(rows)]


def test_each_row_may_use_its_own_list(draw):
    lists = RowShortlists(8, VOCABULARY, threads=1)
    own = lists_of(draw, 5, 300)
    for row, tokens in enumerate(own):
        lists.set(row, tokens)
    assert lists.join(5, 1)
    used = lists.tokens[: lists.used]
    assert used.tolist() == sorted(set(np.concatenate(own).tolist()))
    assert len(lists.tokens) % 256 == 0
    for row, tokens in enumerate(own):
        assert used[lists.outside[row, : lists.used] == 0].tolist() == tokens.tolist()
        assert (lists.outside[row, lists.used :] == -np.inf).all()


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


def test_rows_without_a_list(draw):
    lists = RowShortlists(4, VOCABULARY, threads=1)
    lists.set(1, lists_of(draw, 1, 10)[0])
    lists.set(2, None)
    assert lists.limited(4) == [1]
    assert lists.join(3, 1)
    assert (lists.outside[2] == 0).sum() == 1


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
