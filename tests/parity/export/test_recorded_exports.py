"""Graphs, weights and their names are those that are recorded: see `helpers.recorded_exports`."""

import pytest

from helpers.recorded_exports import NAMES, differences, precisions, state_dict_differs

pytestmark = pytest.mark.slow
RECORDED = [(name, precision) for name in NAMES for precision in precisions(name)]


@pytest.mark.parametrize(("name", "precision"), RECORDED)
def test_graphs_and_weights_are_those_that_are_recorded(name, precision):
    different = list(differences(name, precision))
    assert not different, "\n".join(different)


@pytest.mark.parametrize("name", NAMES)
def test_weights_have_the_names_that_are_recorded(name):
    different = list(state_dict_differs(name))
    assert not different, "\n".join(different)
