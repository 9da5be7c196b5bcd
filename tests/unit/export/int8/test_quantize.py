"""Weights and graphs to int8 and back, and the ranges of activations: what they hold, and what they cut off."""

import numpy as np
import onnx_ir as ir
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from helpers.bundles import SMALL_SIZES, random_model
from helpers.sessions import open_session
from translane_export.core.errors import ExportError
from translane_export.core.ranges import FixedUnits, Range
from translane_export.int8.calibration import _Seen, _squared_error, measure_ranges
from translane_export.int8.keys_values import LARGEST
from translane_export.int8.quantize import quantize_graph, quantize_weights, read_int8
from translane_export.model import TransformerConfig

DRAW = np.random.default_rng(0)
TABLE = DRAW.standard_normal((24, 8), dtype=np.float32)
OTHER = DRAW.standard_normal((12, 8), dtype=np.float32)
BIAS = DRAW.standard_normal(24, dtype=np.float32)
IDS = np.array([3, 0, 23, 5], np.int64)
RANGE = Range(-4.0, 4.0)

floats = st.floats(-1e6, 1e6, width=32, allow_subnormal=False)
matrices = arrays.arrays(np.float32, arrays.array_shapes(min_dims=2, max_dims=2, max_side=9), elements=floats)


@given(matrices)
def test_weights_are_within_half_a_unit_and_come_back_as_they_are(weights):
    units, scales = quantize_weights(weights)
    assert units.dtype == np.int8
    restored = units * scales[:, None]
    assert restored.dtype == np.float32
    assert np.abs(units).max() <= 63
    half = np.abs(weights).max(axis=1, keepdims=True) / 126
    assert (np.abs(restored - weights) <= half * 1.002 + 1e-38).all()
    again, same_scales = quantize_weights(restored)
    np.testing.assert_array_equal(again, units)
    np.testing.assert_array_equal(again * same_scales[:, None], restored)


def test_many_rows_are_as_some():
    weights = DRAW.standard_normal((5000, 3), dtype=np.float32)
    units, scales = quantize_weights(weights)
    last, last_scales = quantize_weights(weights[4090:])
    np.testing.assert_array_equal(units[4090:], last)
    np.testing.assert_array_equal(scales[4090:], last_scales)


@given(st.floats(2**-20, 1024, width=32), st.integers(0, 255))
def test_a_range_is_its_scale_and_zero_point(scale, zero_point):
    found = Range.of_units(scale, zero_point)
    assert (found.scale, found.zero_point) == (np.float32(scale), zero_point)


def graph(*, tied=True):
    """x = table[ids] + 1; y = x · table' + bias; z = x · other'."""
    ids = ir.Value(name="token_ids", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape(["rows"]))
    weights = {"output": TABLE, "other": OTHER, "bias": BIAS, "one": np.ones(1, np.float32)}
    if not tied:
        weights["tokens"] = TABLE
    values = {name: ir.val(name, const_value=ir.tensor(array, name=name)) for name, array in weights.items()}
    gather = ir.node("Gather", [values["output" if tied else "tokens"], ids])
    add = ir.node("Add", [gather.outputs[0], values["one"]])
    x = add.outputs[0]
    y = ir.node("Gemm", [x, values["output"], values["bias"]], {"transB": 1})
    z = ir.node("Gemm", [x, values["other"]], {"transB": 1})
    nodes, inputs, outputs = [gather, add, y, z], [ids], [y.outputs[0], z.outputs[0]]
    for name, value, width in (("y", outputs[0], 24), ("z", outputs[1], 12)):
        value.name, value.type, value.shape = name, ir.TensorType(ir.DataType.FLOAT), ir.Shape(["rows", width])
    return ir.Model(
        ir.Graph(
            inputs, outputs, nodes=nodes, initializers=[*values.values()], opset_imports={"": 21, "com.microsoft": 1}
        ),
        ir_version=10,
    )


def run(model, **inputs):
    return open_session(model).run(None, {"token_ids": IDS, **inputs})


def rounded(weights):
    units, scales = quantize_weights(weights)
    return units * scales[:, None]


def in_units(x, limits=RANGE):
    units = np.clip(np.rint(x / limits.scale) + float(limits.zero_point), 0, 255) - float(limits.zero_point)
    return (units * limits.scale).astype(np.float32)


def operators(model):
    return [node.op_type for node in model.graph]


@pytest.mark.parametrize("tied", [True, False])
def test_a_graph_computes_what_rounded_numbers_give(tied):
    model = graph(tied=tied)
    quantize_graph(model, {"output": RANGE, "other": RANGE})
    x = in_units(rounded(TABLE)[IDS] + 1)
    y, z = run(model)
    np.testing.assert_allclose(y, x @ rounded(TABLE).T + BIAS, atol=1e-4)
    np.testing.assert_allclose(z, x @ rounded(OTHER).T, atol=1e-4)
    assert [value.name for value in model.graph.outputs] == ["y", "z"]
    assert "Gemm" not in operators(model)


@pytest.mark.parametrize("tied", [True, False])
def test_a_shortlist_gets_what_its_columns_of_the_whole_product_are(tied):
    """Bit for bit, whatever the list: sums of integers are exact."""
    listed = ir.Value(name="shortlist", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape(["tokens"]))
    model = graph(tied=tied)
    weight, x = model.graph.initializers["output"], model.graph.outputs[1].producer().inputs[0]
    lookup = ir.node("Gather", [weight, listed])
    product = ir.node("Gemm", [x, lookup.outputs[0]], {"transB": 1})
    output = product.outputs[0]
    output.name, output.type = "listed", ir.TensorType(ir.DataType.FLOAT)
    output.shape = ir.Shape(["rows", "tokens"])
    model.graph.extend([lookup, product])
    model.graph.inputs.append(listed)
    model.graph.outputs.append(output)
    model.graph.initializers["bias"].const_value = ir.tensor(np.zeros(24, np.float32), name="bias")
    quantize_graph(model, {"output": RANGE, "other": RANGE})
    assert "Gemm" not in operators(model)
    for tokens in ([7], [0, 5, 23], [*range(24)]):
        y, _, found = run(model, shortlist=np.array(tokens, np.int64))
        np.testing.assert_array_equal(found, y[:, tokens])


def with_weights(model, weights):
    """The model, with other numbers in some of its weights."""
    for name, array in weights.items():
        model.graph.initializers[name].const_value = ir.tensor(array, name=name)
    return model


@pytest.mark.parametrize("tied", [True, False])
def test_what_is_read_gives_the_same_graph_again(tied):
    model = graph(tied=tied)
    ranges = {"output": RANGE, "other": Range(-1.0, 5.0)}
    quantize_graph(model, ranges)
    weights, found = read_int8(model.graph)
    assert found.keys() == ranges.keys()
    for name, each in found.items():
        assert isinstance(each, Range)
        assert (each.scale, each.zero_point) == (ranges[name].scale, ranges[name].zero_point)
    assert weights.keys() == {"output", "other"} | (set() if tied else {"tokens"})
    for name, array in weights.items():
        np.testing.assert_array_equal(array, rounded(OTHER if name == "other" else TABLE))
    again = with_weights(graph(tied=tied), weights)
    quantize_graph(again, found)
    assert operators(again) == operators(model)
    for one, other in zip(run(again), run(model), strict=True):
        np.testing.assert_array_equal(one, other)


UNITS = DRAW.integers(-127, 128, (24, 8)).astype(np.float32)
OTHERS = DRAW.integers(-127, 128, (12, 8)).astype(np.float32)
FIXED = {"output": FixedUnits(0.03125, (0.0078125,)), "other": FixedUnits(0.0625, (0.25, 0.5, 0.125))}


def fixed_graph(relu=False):
    """As `graph`, over weights that are units already; with `relu`, y is made of what is positive in x."""
    scales = np.repeat(np.array([0.25, 0.5, 0.125], np.float32), 4)[:, None]
    model = with_weights(graph(), {"output": UNITS * np.float32(0.0078125), "other": OTHERS * scales})
    if relu:
        product = next(node for node in model.graph if node.op_type == "Gemm")
        positive = ir.node("Relu", [product.inputs[0]])
        model.graph.insert_before(product, positive)
        product.replace_input_with(0, positive.outputs[0])
    return model


def fixed_product(x, units, of_input, of_weight):
    a = np.clip(np.rint(x / np.float32(of_input)), -127, 127)
    return (a @ units.T) * np.float32(of_input) * of_weight


@pytest.mark.parametrize("relu", [False, True])
def test_fixed_units_are_taken_as_they_are_and_come_back(relu):
    model = fixed_graph(relu)
    quantize_graph(model, FIXED)
    x = UNITS[IDS] * np.float32(0.0078125) + np.array([1, -5, 8, 1, 1, 1, 1, 1], np.float32)  # beyond 127 units, too
    model.graph.initializers["one"].const_value = ir.tensor(x - UNITS[IDS] * np.float32(0.0078125), name="one")
    y, z = run(model)
    positive = np.maximum(x, 0) if relu else x
    np.testing.assert_array_equal(y, (fixed_product(positive, UNITS, 0.03125, 0.0078125) + BIAS).astype(np.float32))
    of_weight = np.repeat([0.25, 0.5, 0.125], 4)
    np.testing.assert_array_equal(z, fixed_product(x, OTHERS, 0.0625, of_weight).astype(np.float32))
    assert "Relu" not in operators(model)
    weights, found = read_int8(model.graph)
    assert found == FIXED
    assert weights.keys() == FIXED.keys()
    for name, array in weights.items():
        np.testing.assert_array_equal(array, fixed_graph().graph.initializers[name].const_value.numpy())


def test_weights_beyond_int8_are_refused_and_do_not_wrap():
    with pytest.raises(ExportError, match="output has weights beyond 127 units"):
        quantize_graph(fixed_graph(), {**FIXED, "output": FixedUnits(0.03125, (0.002,))})


@pytest.mark.parametrize("with_added_row", [False, True])
def test_products_with_some_rows_of_fixed_units_are_exact_too(with_added_row):
    ids = ir.Value(name="token_ids", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape(["tokens"]))
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["rows", 8]))
    numbers = {
        "output": UNITS * np.float32(0.0078125),
        "zero": np.array([0]),
        "one": np.array([1]),
        "last": np.array([-1]),
    }
    initializers = [ir.val(name, const_value=ir.tensor(array, name=name)) for name, array in numbers.items()]
    weight, zero, one, last = initializers
    rows = ir.node("Gather", [weight, ids])
    added = ir.node("Slice", [x, zero, one])
    joined = ir.node("Concat", [x, added.outputs[0]], {"axis": 0})
    product = ir.node("Gemm", [joined.outputs[0] if with_added_row else x, rows.outputs[0]], {"transB": 1})
    cut = ir.node("Slice", [product.outputs[0], zero, last])
    nodes = [rows, added, joined, product, cut] if with_added_row else [rows, product]
    output = nodes[-1].outputs[0]
    output.name, output.type, output.shape = "y", ir.TensorType(ir.DataType.FLOAT), ir.Shape(["rows", "tokens"])
    made = ir.Graph([ids, x], [output], nodes=nodes, initializers=initializers, opset_imports={"": 21})
    model = ir.Model(made, ir_version=10)
    quantize_graph(model, FIXED)
    assert not {"Slice", "Concat"} & set(operators(model))
    for count in (1, 3):
        given = DRAW.standard_normal((count, 8), dtype=np.float32) * 3
        (found,) = run(model, x=given)
        wanted = fixed_product(given, UNITS[IDS], 0.03125, 0.0078125)
        np.testing.assert_array_equal(found, wanted.astype(np.float32))


PAIRS = [([5, 6, 7, 3], [8, 9]), ([4, 3], [10, 11, 12]), ([9, 9, 8, 7, 3], [])]


def seen(*arrays):
    found = _Seen()
    for array in arrays:
        found.add(torch.tensor(array), 1 << 14)
    return found


@pytest.mark.parametrize(("low", "high"), [(0.5, 2.0), (-3.0, -1.0), (-1.0, 4.0), (0.0, 0.0)])
def test_zero_is_in_every_range(low, high):
    """And evenly spread numbers are not cut off."""
    found = seen(np.linspace(low, high, 1000, dtype=np.float32)).best_range()
    assert found.low <= 0 <= found.high
    assert 0 < found.scale < np.inf
    assert abs(found.low - min(low, 0)) <= found.scale
    assert abs(found.high - max(high, 0)) <= found.scale


def test_heavy_tails_are_cut_off_and_that_is_nearer_to_the_numbers():
    values = np.random.default_rng(0).laplace(size=1_000_000).astype(np.float32)
    found, everything = seen(values).best_range(), Range(float(values.min()), float(values.max()))
    assert found.high < 0.9 * everything.high
    assert _squared_error(values, found) < 0.8 * _squared_error(values, everything)
    assert 0.1 < seen(values).best_scale() / (np.abs(values).max() / LARGEST) < 0.9


def test_extremes_of_what_is_not_kept_count():
    first, second = np.zeros(1 << 16, np.float32), np.full(4, 9.0, np.float32)
    found = _Seen()
    found.add(torch.tensor(first), 1 << 16)  # there is no room after it
    found.add(torch.tensor(second), 4)
    assert found.high == 9


def test_ranges_are_what_the_model_meets():
    model = random_model(TransformerConfig(**SMALL_SIZES))
    met = []
    model.output_projection.register_forward_pre_hook(lambda _module, inputs: met.append(inputs[0]))
    found = measure_ranges(model, PAIRS).decoder["output_projection.weight"]
    assert isinstance(found, Range)
    everything = torch.cat([inputs.flatten() for inputs in met])
    assert [inputs.shape[1] for inputs in met] == [1 + len(target) for _, target in PAIRS]
    assert float(everything.min()) - 1e-6 <= found.low < found.high <= float(everything.max()) + 1e-6
    assert found.high - found.low > 0.3 * float(everything.max() - everything.min()) - 1e-6


def test_of_long_sentences_as_much_counts_as_the_model_takes():
    model = random_model(TransformerConfig(**SMALL_SIZES))
    long = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
    assert measure_ranges(model, [(long, long)]) == measure_ranges(model, [(long[:8], long[:7])])
