"""Graphs as they are written: an output that is computed on request, and weights that several graphs share."""

import numpy as np
import onnx_ir as ir
import pytest

from helpers.sessions import open_session
from translane_export.graphs.onnx_export import compute_on_request
from translane_export.graphs.writer import share_weights

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


def test_an_output_has_entries_where_it_is_asked_for_and_the_rest_is_as_before():
    before, model = open_session(graph()).run(None, {"x": X}), graph()
    compute_on_request(model, ["rare"], "asked", 0)
    for asked in (True, False):
        y, rare, z = open_session(model).run(None, {"asked": np.array(asked), "x": X})
        np.testing.assert_array_equal(y, before[0])
        np.testing.assert_array_equal(rare, before[1] if asked else np.zeros((0, 0)))
        np.testing.assert_array_equal(z, before[2])


# The same bytes are stored once.


BIG = DRAW.standard_normal((32, 16), dtype=np.float32)
OTHER = DRAW.standard_normal((16, 32), dtype=np.float32)
BIAS = DRAW.standard_normal(32, dtype=np.float32)


def projection(weight, name="weight"):
    """y = x @ weight.T + bias."""
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["rows", weight.shape[1]]))
    arrays = {name: weight, "bias": BIAS[: len(weight)]}
    values = [ir.Value(name=key, const_value=ir.tensor(array, name=key)) for key, array in arrays.items()]
    gemm = ir.node("Gemm", [x, *values], {"transB": 1})
    gemm.outputs[0].name, gemm.outputs[0].dtype = "y", ir.DataType.FLOAT
    gemm.outputs[0].shape = ir.Shape(["rows", len(weight)])
    return ir.Model(
        ir.Graph([x], gemm.outputs, nodes=[gemm], initializers=values, opset_imports={"": 21}), ir_version=10
    )


def run(path, x):
    return open_session(path).run(None, {"x": x})[0]


@pytest.mark.parametrize(("storage", "matrix_size"), [("float32", 4), ("float16", 2)])
def test_shared_and_exact(tmp_path, storage, matrix_size):
    models = [projection(BIG), projection(BIG.copy(), "again"), projection(OTHER)]
    share_weights(models, tmp_path / "weights.bin", storage)
    for index, model in enumerate(models):
        ir.save(model, tmp_path / f"{index}.onnx")
    stored = BIG.nbytes // 4 * matrix_size
    assert (tmp_path / "weights.bin").stat().st_size == 4096 + stored  # two tensors, the second on its own page
    x = DRAW.standard_normal((3, 16), dtype=np.float32)
    weight = BIG if storage == "float32" else BIG.astype(np.float16).astype(np.float32)
    expected = x @ weight.T + BIAS
    np.testing.assert_allclose(run(tmp_path / "0.onnx", x), expected, atol=1e-5)
    np.testing.assert_array_equal(run(tmp_path / "0.onnx", x), run(tmp_path / "1.onnx", x))


def test_small_tensors_stay_in_the_graph(tmp_path):
    model = projection(BIG[:4])
    share_weights([model], tmp_path / "weights.bin", "float32")
    assert (tmp_path / "weights.bin").stat().st_size == 0
    assert not any(isinstance(value.const_value, ir.ExternalTensor) for value in model.graph.initializers.values())
