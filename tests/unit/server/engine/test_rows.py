import numpy as np

from translane_server.engine.rows import RowTable


def test_a_copied_row_is_equal_in_everything_that_is_decided():
    table = RowTable(4, 6, 5)
    table.history[1] = range(10, 17)
    table.positions[1], table.scores[1], table.stream[1] = 3, -1.5, 7
    table.log_probs[1] = -0.25
    table.attention[1], table.source_length[1] = True, 4
    table.attention_weights[1] = 0.5
    table.copy([1], [3])
    assert table.tokens(3, 0, 3) == [11, 12, 13]
    assert table.scores[3] == -1.5
    assert table.stream[3] == 7
    assert table.log_probs[3, :3].tolist() == [-0.25] * 3
    # the step's own weights are there before its token is
    assert (table.attention_weights[3, :4, :4] == 0.5).all()
    assert not table.attention_weights[3, :, 4:].any()


def test_copying_nothing_changes_nothing():
    table = RowTable(2, 6, 5)
    before = table.history.copy()
    table.copy([], [])
    assert np.array_equal(table.history, before)
