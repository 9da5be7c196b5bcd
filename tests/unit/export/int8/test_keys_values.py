"""Keys and values of cross-attention to int8, and back; and that attention reads them as the floats they stand for."""

import numpy as np
import onnx_ir as ir
import pytest

from helpers.sessions import open_session
from translane_export.int8.keys_values import dequantize_encoder, quantize_decoder, quantize_encoder

HEADS, SIZE, CAPACITY = 2, 8, 6
WIDTH = HEADS * SIZE
SCALES = {"cross_key_0": np.float32(0.02), "cross_value_0": np.float32(0.05)}
DRAW = np.random.default_rng(0)


def model(inputs, outputs, nodes):
    graph = ir.Graph(inputs, outputs, nodes=nodes, opset_imports={"": 21, "com.microsoft": 1})
    return ir.Model(graph, ir_version=10)


def tensor(name, dtype, *shape):
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))


def encoder():
    """Numbers to keys and values: heads apart, and nothing else."""
    x = tensor("x", ir.DataType.FLOAT, "batch", "source", HEADS, SIZE)
    splits = [ir.node("Transpose", [x], {"perm": [0, 2, 1, 3]}) for _ in SCALES]
    for split, name in zip(splits, SCALES, strict=True):
        value = split.outputs[0]
        value.name, value.type = name, ir.TensorType(ir.DataType.FLOAT)
        value.shape = ir.Shape(["batch", HEADS, "source", SIZE])
    return model([x], [split.outputs[0] for split in splits], splits)


def decoder():
    """A query to its context."""
    query = tensor("query", ir.DataType.FLOAT, "rows", 1, WIDTH)
    nothing = tensor("nothing", ir.DataType.FLOAT, "rows", 0, WIDTH)
    last = tensor("last", ir.DataType.INT32, "rows")
    total = tensor("total", ir.DataType.INT32)
    caches = [tensor(name, ir.DataType.FLOAT, "rows", HEADS, "capacity", SIZE) for name in SCALES]
    attention = ir.Node(
        "com.microsoft",
        "GroupQueryAttention",
        [query, nothing, nothing, *caches, last, total],
        ir.convenience.convert_attributes({"num_heads": HEADS, "kv_num_heads": HEADS, "scale": 0.5}),
        num_outputs=1,
    )
    context = attention.outputs[0]
    context.name, context.type = "context", ir.TensorType(ir.DataType.FLOAT)
    context.shape = ir.Shape(["rows", 1, WIDTH])
    return model([query, nothing, last, total, *caches], [context], [attention])


def run(graph, feeds):
    session = open_session(graph)
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, feeds), strict=True))


def attend(graph, feeds, threads=1):
    """The context; keys and values are returned to where they are."""
    session, context = open_session(graph, threads=threads), np.empty((len(feeds["query"]), 1, WIDTH), np.float32)
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        if name in SCALES:
            binding.bind_output(f"present_{name}", "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    binding.bind_output("context", "cpu", 0, np.float32, context.shape, context.ctypes.data)
    session.run_with_iobinding(binding)
    return context


def test_the_encoder_gives_the_nearest_units():
    graph = encoder()
    quantize_encoder(graph, SCALES)
    x = DRAW.uniform(-4, 4, (3, 5, HEADS, SIZE)).astype(np.float32)
    for name, found in run(graph, {"x": x}).items():
        assert found.dtype == np.int8
        units = np.clip(np.round(x.transpose(0, 2, 1, 3) / SCALES[name]), -128, 127)
        np.testing.assert_array_equal(found, units)


def test_it_is_undone():
    graph, plain = encoder(), encoder()
    assert dequantize_encoder(graph) == {}
    quantize_encoder(graph, SCALES)
    assert dequantize_encoder(graph) == SCALES
    assert [node.op_type for node in graph.graph] == [node.op_type for node in plain.graph]
    x = DRAW.standard_normal((2, 4, HEADS, SIZE), np.float32)
    for name, found in run(graph, {"x": x}).items():
        np.testing.assert_array_equal(found, x.transpose(0, 2, 1, 3), name)


@pytest.mark.parametrize("threads", [1, 2])
def test_attention_reads_units_as_the_floats_they_stand_for_and_leaves_them(threads):
    """Rows of all lengths; and each the same to the bit when it is alone."""
    graph, plain = decoder(), decoder()
    quantize_decoder(graph, SCALES)
    rows = CAPACITY
    units = {name: DRAW.integers(-128, 128, (rows, HEADS, CAPACITY, SIZE), np.int8) for name in SCALES}
    floats = {name: (array * SCALES[name]).astype(np.float32) for name, array in units.items()}
    common = {
        "query": DRAW.standard_normal((rows, 1, WIDTH), np.float32),
        "nothing": np.zeros((rows, 0, WIDTH), np.float32),
        "last": np.arange(rows, dtype=np.int32),
        "total": np.array(CAPACITY, np.int32),
    }
    kept = {name: array.copy() for name, array in units.items()}
    found = attend(graph, common | units, threads)
    np.testing.assert_allclose(found, run(plain, common | floats)["context"], atol=1e-5)
    for name, array in units.items():
        np.testing.assert_array_equal(array, kept[name])
    for row in range(rows):
        one = {name: array[row : row + 1].copy() if array.ndim else array for name, array in (common | units).items()}
        np.testing.assert_array_equal(attend(graph, one)[0], found[row])
