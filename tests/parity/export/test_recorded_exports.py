"""Graphs, weights and their names are those that are recorded."""

from itertools import zip_longest

import pytest

from helpers.recorded_exports import NAMES, exported, precisions, recorded_graphs, recorded_state_dict, state_dict

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "precision"), [(name, precision) for name in NAMES for precision in precisions(name)])
def test_graphs_and_weights_are_those_that_are_recorded(name, precision):
    graphs, recorded = exported(name, precision), recorded_graphs(name, precision)
    assert graphs.keys() == recorded.keys()
    for key, graph in graphs.items():
        known = recorded[key]
        assert graph.operators == known.operators, key
        lines = enumerate(zip_longest(graph.lines, graph.digests, known.digests), start=1)
        others = [(number, line) for number, (line, ours, theirs) in lines if ours != theirs]
        assert others == [], key
        assert graph.sums.keys() == known.sums.keys(), key
        sums = [(name, each, known.sums[name]) for name, each in graph.sums.items()]
        assert [each for each in sums if not abs(each[1].value - each[2]) <= each[1].tolerance] == [], key


@pytest.mark.parametrize("name", NAMES)
def test_weights_have_the_names_that_are_recorded(name):
    assert state_dict(name) == recorded_state_dict(name)
