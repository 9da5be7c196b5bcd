"""A profile of steps is read run by run: what a node is for follows from its operator and its place."""

import pytest

from benchmarks.measuring.step_profile import ROLES, outermost, step_times

SELF = [{"float": [2, 1, 48]}, {"float": [2, 2, 9, 8]}]
CROSS = [{"float": [2, 1, 16]}, {"float": [2, 0, 16]}, {"int8": [2, 2, 5, 8]}]


def run(start, nodes):
    """Events of a run at `start`: nodes of (operator, duration, shapes of inputs), 100 µs apart."""
    yield {"cat": "Session", "name": "model_run", "ts": start, "dur": 100 * (len(nodes) + 1)}
    for place, (operator, duration, *shapes) in enumerate(nodes, start=1):
        yield {
            "cat": "Node",
            "name": f"{operator}_{place}_kernel_time",
            "ts": start + 100 * place,
            "dur": duration,
            "args": {"op_name": operator, "input_type_shape": shapes[0] if shapes else []},
        }


def nodes(product):
    return [
        ("Gather", 3),
        ("Add", 2),
        ("LayerNormalization", 5),
        ("QuantizeLinear", 4),
        ("MatMulIntegerToFloat", product),
        ("Unsqueeze", 1),
        ("GroupQueryAttention", 20, SELF),
        ("GroupQueryAttention", 30, CROSS),
        ("Gemm", 7),
        ("Relu", 6),
        ("Add", 8),
        ("Gemm", 9),
        ("ReduceMax", 11),
        ("Add", 12),
    ]


def test_nodes_are_added_up_by_what_they_are_for():
    events = [*run(0, nodes(1)), *run(10_000, nodes(50)), *run(20_000, nodes(12)), *run(30_000, nodes(14))]
    times = step_times(events, 3)
    assert times.nodes == 14
    assert times.roles == {
        "products": 6 + 8 + 11,  # the lower quartile of the last three runs
        "self-attention": 19,  # a microsecond of each node is the profiler's, as Unsqueeze shows
        "cross-attention": 29,
        "norms": 4,
        "quantization": 3,
        "additions": 7,
        "activations": 5,
        "embeddings": 3,
        "candidates": 21,
        "shapes": 0,
    }
    assert set(times.roles) == set(ROLES)


def test_nodes_within_a_node_do_not_count():
    outer = {"ts": 10, "dur": 50}
    assert outermost([{"ts": 20, "dur": 5}, outer, {"ts": 30, "dur": 30}, {"ts": 60, "dur": 1}]) == [
        outer,
        {"ts": 60, "dur": 1},
    ]


def test_a_profile_of_too_few_runs_is_refused():
    with pytest.raises(ValueError, match="has 1 runs, and not 2"):
        step_times(list(run(0, nodes(1))), 2)
