"""A profile is added up by operator: nodes within nodes count once, and first and slow runs do not count."""

import pytest

from translane_export.explain.operators import summarise


def run(start, duration):
    return {"cat": "Session", "name": "model_run", "ts": start, "dur": duration, "args": {}}


def node(operator, start, duration):
    name = f"node_{operator}_kernel_time"
    return {"cat": "Node", "name": name, "ts": start, "dur": duration, "args": {"op_name": operator}}


def test_it_adds_up_by_operator():
    events = [
        run(0, 900), node("Add", 1, 800),  # warm-up
        run(1000, 100), node("Add", 1010, 20), node("MatMul", 1040, 50), node("Add", 1091, 10),
        run(2000, 500), node("Add", 2010, 400),  # the slower half
        {"cat": "Session", "name": "session_initialization", "ts": 0, "dur": 5, "args": {}},
    ]  # fmt: skip
    found = summarise("decoder step", events, 70.0, left_out=1)
    assert (found.runs, found.profiled, found.unprofiled) == (1, 100, 70.0)
    assert [(each.operator, each.nodes, each.microseconds) for each in found.operators] == [
        ("MatMul", 1, 50),
        ("Add", 2, 30),
    ]
    assert [each.share for each in found.operators] == [0.625, 0.375]


def test_a_node_within_a_node_counts_once():
    events = [
        run(0, 100),
        node("Add", 12, 8),
        node("If", 10, 40),
        node("Loop", 25, 20),
        node("Add", 30, 10),
        node("Mul", 60, 5),
    ]
    found = summarise("decoder step", events, 1.0, left_out=0)
    times = {each.operator: (each.nodes, each.microseconds) for each in found.operators}
    assert times == {"If": (1, 12), "Loop": (1, 10), "Add": (2, 18), "Mul": (1, 5)}


@pytest.mark.slow
def test_a_bundles_graphs_are_profiled(findings):
    step, encoder = findings.graphs
    assert (step.graph, encoder.graph) == ("decoder step", "encoder")
    for graph in findings.graphs:
        assert sum(each.share for each in graph.operators) == pytest.approx(1)
        assert sum(each.microseconds for each in graph.operators) <= graph.profiled
        assert all(each.nodes == int(each.nodes) >= 1 for each in graph.operators)
    nodes = {each.operator: each.nodes for each in step.operators}
    assert nodes["GroupQueryAttention"] == 6  # of three layers, one for each attention
    assert "GroupQueryAttention" in {each.operator for each in encoder.operators}
