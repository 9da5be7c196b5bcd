"""The graph of matrix products alone: those of the decoder's step, on its weights."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from benchmarks.places import DEMO
from benchmarks.runs.products import MatrixProducts, products_of
from helpers.sessions import open_session
from translane_server.bundle.bundle import load_bundle


def test_every_projection_of_the_demo_is_among_its_products():
    bundle = load_bundle(DEMO)
    layers = bundle.manifest.architecture.decoder_layers
    products = MatrixProducts(bundle, threads=1)
    assert products.count == 6 * layers + 1  # packed, out, q, out, up, down; and the logits
    products.bind(3)()


def test_a_product_is_the_same_as_in_the_model():
    """Weights stored as float16 and computed constants come along; products of activations do not."""
    random = np.random.default_rng(0)
    first, second = (random.standard_normal(shape).astype(np.float16) for shape in ((4, 8), (2, 4)))
    bias = random.standard_normal(2).astype(np.float32)
    nodes = [
        helper.make_node("Cast", ["first_half"], ["first"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["second_half"], ["second"], to=TensorProto.FLOAT),
        helper.make_node("Gemm", ["x", "first"], ["hidden"], transB=1),
        helper.make_node("Relu", ["hidden"], ["active"]),
        helper.make_node("Gemm", ["active", "second", "bias"], ["y"], transB=1),
        helper.make_node("Transpose", ["y"], ["across"]),
        helper.make_node("MatMul", ["y", "across"], ["square"]),
    ]
    stored = [
        numpy_helper.from_array(first, "first_half"),
        numpy_helper.from_array(second, "second_half"),
        numpy_helper.from_array(bias, "bias"),
    ]
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 8])],
        [helper.make_tensor_value_info("square", TensorProto.FLOAT, None)],
        stored,
    )
    products = products_of(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    session = open_session(products.SerializeToString())
    x8, x4 = (random.standard_normal((5, width)).astype(np.float32) for width in (8, 4))
    hidden, y = session.run(None, {"x8": x8, "x4": x4})
    np.testing.assert_allclose(hidden, x8 @ first.astype(np.float32).T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(y, x4 @ second.astype(np.float32).T + bias, rtol=1e-4, atol=1e-5)
