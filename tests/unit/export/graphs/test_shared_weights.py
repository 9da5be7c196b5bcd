"""Weights of several graphs share one file; the same bytes are stored once."""

import numpy as np
import onnx_ir as ir
import pytest

from helpers.sessions import open_session
from translane_export.graphs.writer import share_weights

DRAW = np.random.default_rng(0)
BIG = DRAW.standard_normal((32, 16), dtype=np.float32)
OTHER = DRAW.standard_normal((16, 32), dtype=np.float32)
BIAS = DRAW.standard_normal(32, dtype=np.float32)


def graph(weight, name="weight"):
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
    models = [graph(BIG), graph(BIG.copy(), "again"), graph(OTHER)]
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
    model = graph(BIG[:4])
    share_weights([model], tmp_path / "weights.bin", "float32")
    assert (tmp_path / "weights.bin").stat().st_size == 0
    assert not any(isinstance(value.const_value, ir.ExternalTensor) for value in model.graph.initializers.values())
