import numpy as np

from translane_server.batch.rows import RowTable


def test_a_copied_row_is_equal_in_everything_that_is_decided():
    table = RowTable(4, 6, 5)
    table.history[1] = range(10, 17)
    table.positions[1], table.scores[1], table.seed[1] = 3, -1.5, 2**63 + 1
    table.log_probs[1] = -0.25
    table.attention[1], table.source_length[1] = True, 4
    table.attention_weights[1] = 0.5
    table.copy([1], [3])
    assert table.tokens(3, 3) == [11, 12, 13]
    assert table.scores[3] == -1.5
    assert table.seed[3] == 2**63 + 1
    assert table.log_probs[3, :3].tolist() == [-0.25] * 3
    # the step's own weights are there before its token is
    assert (table.attention_weights[3, :4, :4] == 0.5).all()
    assert not table.attention_weights[3, :, 4:].any()


def test_tokens_that_are_still_to_be_forced_are_copied():
    table = RowTable(2, 6, 5)
    table.forced[0] = range(6)
    table.forced_length[0], table.positions[0] = 4, 1
    table.copy([0], [1])
    assert table.forced[1, :4].tolist() == [0, 1, 2, 3]


def test_copying_nothing_changes_nothing():
    table = RowTable(2, 6, 5)
    before = table.history.copy()
    table.copy([], [])
    assert np.array_equal(table.history, before)
