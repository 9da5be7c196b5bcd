"""Graphs and the names of weights are those that are recorded."""

from itertools import zip_longest

import pytest

from helpers.recorded_exports import (
    NAMES,
    exported,
    precisions,
    recorded_graphs,
    recorded_state_dict,
    state_dict,
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "precision"), [(name, precision) for name in NAMES for precision in precisions(name)])
def test_graphs_are_those_that_are_recorded(name, precision):
    graphs, recorded = exported(name, precision), recorded_graphs(name, precision)
    assert graphs.keys() == recorded.keys()
    for key, graph in graphs.items():
        operators, digests = recorded[key]
        assert graph.operators == operators, key
        lines = enumerate(zip_longest(graph.lines, graph.digests, digests), start=1)
        others = [(number, line) for number, (line, ours, theirs) in lines if ours != theirs]
        assert others == [], key


@pytest.mark.parametrize("name", NAMES)
def test_weights_have_the_names_that_are_recorded(name):
    assert state_dict(name) == recorded_state_dict(name)
