"""An output that is computed on request: the same numbers where asked for, nothing where not, all else as it was."""

import numpy as np
import onnx_ir as ir
import pytest

from helpers.sessions import open_session
from translane_export.graphs.onnx_export import compute_on_request

DRAW = np.random.default_rng(0)
X = DRAW.standard_normal((3, 8), dtype=np.float32)


def graph():
    """y = relu(x); rare = log(softmax(y · 2)); z = y + 1."""
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["rows", 8]))
    values = [
        ir.val(name, const_value=ir.tensor(np.full(1, number, np.float32), name=name))
        for name, number in (("two", 2.0), ("one", 1.0))
    ]
    relu = ir.node("Relu", [x])
    doubled = ir.node("Mul", [relu.outputs[0], values[0]])
    softmax = ir.node("Softmax", [doubled.outputs[0]], {"axis": -1})
    logarithm = ir.node("Log", softmax.outputs)
    plus = ir.node("Add", [relu.outputs[0], values[1]])
    outputs = [relu.outputs[0], logarithm.outputs[0], plus.outputs[0]]
    for value, name in zip(outputs, ("y", "rare", "z"), strict=True):
        value.name, value.type, value.shape = name, ir.TensorType(ir.DataType.FLOAT), ir.Shape(["rows", 8])
    nodes = [relu, doubled, softmax, logarithm, plus]
    return ir.Model(
        ir.Graph([x], outputs, nodes=nodes, initializers=values, opset_imports={"": 21}, name="g"), ir_version=10
    )


@pytest.fixture
def changed():
    model = graph()
    compute_on_request(model, "rare", "asked", 0)
    return model


def test_where_asked_for_everything_is_as_before(changed):
    before = open_session(graph()).run(None, {"x": X})
    after = open_session(changed).run(None, {"asked": np.array(True), "x": X})
    for expected, actual in zip(before, after, strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_where_not_it_has_no_entries_and_the_rest_is_as_before(changed):
    before = open_session(graph()).run(None, {"x": X})
    y, rare, z = open_session(changed).run(None, {"asked": np.array(False), "x": X})
    assert rare.shape == (0, 0)
    np.testing.assert_array_equal(y, before[0])
    np.testing.assert_array_equal(z, before[2])
