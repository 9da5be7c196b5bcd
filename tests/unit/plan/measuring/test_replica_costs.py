"""Costs are found again in the rounds that they explain."""

import pytest

from translane_plan.measuring.driven_loop import Round
from translane_plan.measuring.replica_costs import ROWS, _Cell, costs_of

STEP, ROW, KEY, TURN, SENTENCE, ENCODE = 1e-3, 1e-4, 1e-6, 5e-4, 5e-5, 1e-5
CELLS = [*(_Cell(rows, 12, 16) for rows in ROWS), _Cell(16, 48, 60)]


def round_of(cell, noise=1.0):
    step = noise * (STEP + ROW * cell.rows + KEY * cell.rows * cell.keys)
    encode = ENCODE * cell.rows * cell.source
    seconds = encode + cell.target * step + TURN + cell.rows * SENTENCE
    return Round(cell.rows, seconds, [(encode, cell.rows * cell.source)], [(step, cell.rows)] * cell.target)


def test_the_costs_explain_the_rounds():
    costs = costs_of(CELLS, [[round_of(cell)] * 3 for cell in CELLS])
    assert costs.key == pytest.approx(KEY)
    for rows in (1, 5, 16, 64):
        assert costs.steps.at(rows) == pytest.approx(STEP + ROW * rows)
    assert costs.encodes.at(100) == pytest.approx(ENCODE * 100)
    assert (costs.turn, costs.sentence) == pytest.approx((TURN, SENTENCE))
    assert costs.wake == 0


def test_a_round_that_was_disturbed_changes_little():
    rounds = [[round_of(cell), round_of(cell, noise=3.0), round_of(cell)] for cell in CELLS]
    assert costs_of(CELLS, rounds) == costs_of(CELLS, [[round_of(cell)] * 3 for cell in CELLS])


def test_a_model_of_short_sentences_alone_has_no_cost_of_keys():
    cells = [_Cell(cell.rows, 12, 16) for cell in CELLS]
    assert costs_of(cells, [[round_of(cell)] for cell in cells]).key == 0
