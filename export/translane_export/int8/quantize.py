"""Turns the projections and embeddings of float32 graphs into int8 ones.

Weights are signed, with a scale for each output (that is, for each row as PyTorch stores them). Activations are
unsigned, with a scale and a zero point that are fixed when the bundle is written: unlike a scale found for each batch
of rows, they make what a row gets independent of the rows beside it, and they cost one pass over the input. Products
are summed up in int32 (https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md,
MatMulIntegerToFloat) and are float32 from there on, as norms and attention are. What cross-attention reads is int8
again: see `keys_values`.

A checkpoint that is int8 itself, a student of Firefox's, has fixed units: those of its weights, of 8 bits, and those of
what they are multiplied with, of which there are 127 on each side. They are taken as they are. Servers have sums of
8 bits computed exactly (`translane_server.runtime.sessions`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from translane_export.core.errors import ExportError
from translane_export.core.ranges import FixedUnits, Limits, Range
from translane_server.core.arrays import FloatArray

UNITS, SCALES = ".int8", ".scales"  # after a weight's name: what stands for it
# Units of a row's largest weight. They are symmetric, so that there is no zero point to correct for, and have 7 bits:
# without VNNI, processors add products of two pairs in int16, where two of 255 · 64 have room and two of 255 · 127 do
# not (https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html, S8S8 and U8S8).
_LARGEST = 63


def quantize_weights(weights: FloatArray) -> tuple[npt.NDArray[np.int8], FloatArray]:
    """Return the weights [N, K] in units of each row's scale, and these scales [N].

    A scale has 17 significant bits, so that its product with a unit, of at most 7, is a float32 without rounding:
    weights read back from a bundle give the same units and scales again.
    """
    scales = np.maximum(weights.max(axis=1), -weights.min(axis=1)) / np.float32(_LARGEST)  # [N]
    scales = ((scales.view(np.uint32) + 0x40) & 0xFFFFFF80).view(np.float32)
    scales[scales == 0] = 1.0
    units = np.empty(weights.shape, np.int8)
    for first in range(0, len(weights), _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        units[rows] = np.round(weights[rows] / scales[rows, None])
    return units, scales


_MOST_UNITS = 127  # of a number, where units are fixed
_EXACT = 1 << 24  # sums of whole numbers below are exact in float32, in any order
_ROWS_AT_ONCE = 4096  # of a large vocabulary a whole second copy would be as large as the model


def quantize_graph(model: ir.Model, ranges: Mapping[str, Limits]) -> None:
    """Replace, in place, the projections by weights that `ranges` names, and the look-ups of tokens' vectors.

    A weight that is looked up in and projected with is stored once. So is one that a shortlist's projection takes some
    rows of. Projections that are computed on request stay float32, with weights that are rounded as if they did not.

    Raises:
        ExportError: units are fixed, and sums of products with a shortlist's rows could exceed what float32 holds.
    """
    _GraphQuantizer(model.graph, ranges).run()


class _GraphQuantizer:
    def __init__(self, graph: ir.Graph, ranges: Mapping[str, Limits]) -> None:
        self._graph = graph
        self._ranges = ranges
        self._looked_up = {_initializer(node, 0) for node in graph if _is_token_lookup(node, graph)} - {None}
        self._weights: dict[str, tuple[ir.Value, ir.Value]] = {}  # name -> units, scales
        self._transposed: dict[str, ir.Value] = {}
        self._is_fixed = any(isinstance(limits, FixedUnits) for limits in ranges.values())
        self._inputs: dict[tuple[ir.Value, Limits], tuple[ir.Value, ...]] = {}

    def run(self) -> None:
        for node in list(self._graph):
            if node.op_type == "Gemm" and _initializer(node, 1) in self._ranges:
                self._replace_projection(node)
            elif _is_token_lookup(node, self._graph):
                weights = (use.node for use in node.outputs[0].uses() if use.idx == 1)
                projection = next((user for user in weights if user.op_type == "Gemm"), None)
                if projection is None:
                    self._replace_lookup(node)
                else:
                    self._replace_projection_of_rows(node, projection)
            elif node.op_type == "If":
                self._round_branch(node.attributes["then_branch"].as_graph())
        drop_unused_initializers(self._graph)

    def _round_branch(self, branch: ir.Graph) -> None:
        for node in branch:
            name = _initializer(node, 1) if node.op_type == "Gemm" else None
            if name is not None and not self._is_fixed:
                units, scales = quantize_weights(_float_array(self._graph.initializers[name]))
                self._graph.initializers[name].const_value = ir.tensor(units * scales[:, None], name=name)

    def _replace_projection(self, node: ir.Node) -> None:
        x, name = node.inputs[0], _initializer(node, 1)
        assert x is not None
        assert name is not None
        assert node.attributes.get_int("transB", 0) == 1, "weights are as PyTorch stores them"
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        units, scale, zero_point = self._quantized_input(node, x, self._ranges[name])
        _, scales = self._quantized_weight(name)
        inputs = [units, self._columns(node, name), scale, scales, zero_point, None, bias]
        replace_node(self._graph, node, [ir.node("MatMulIntegerToFloat", inputs, domain="com.microsoft")])
        before = x.producer()
        if before is not None and before.op_type == "Relu" and not x.uses():
            self._graph.remove(before, safe=True)  # units without negative ones do without

    def _replace_projection_of_rows(self, lookup: ir.Node, node: ir.Node) -> None:
        """Replace a projection by the rows of a weight that a node looks up.

        The kernels of int8 multiply 8 bits exactly only with weights that are stored, not with rows that are looked up.
        So with fixed units, whole numbers are multiplied as floats. Their sums are exact in any order, so the row that
        `ShortlistGraph` adds to keep the order of sums is taken away.
        """
        x, name, ids = node.inputs[0], _initializer(lookup, 0), lookup.inputs[1]
        assert x is not None
        assert name is not None
        stored, of_weight = self._quantized_weight(name)
        is_fixed, joined = isinstance(self._ranges[name], FixedUnits), x.producer()
        if is_fixed and joined is not None and joined.op_type == "Concat":
            x = self._without_added_row(node, joined)
        units, scale, zero_point = self._quantized_input(node, x, self._ranges[name])
        rows = ir.node("Gather", [stored, ids])
        if is_fixed:
            if _MOST_UNITS * int(np.abs(_array(stored).astype(np.int32)).sum(axis=1).max()) >= _EXACT:
                raise ExportError(
                    f"int8 with a shortlist: sums of products with {name} exceed what float32 holds exactly"
                )
            floats = [_as_floats(each) for each in (units, zero_point, rows.outputs[0])]
            whole = ir.node("Sub", [each.outputs[0] for each in floats[:2]])
            sums = ir.node("Gemm", [whole.outputs[0], floats[2].outputs[0]], {"transB": 1})
            unit = ir.node("Mul", [scale, of_weight])
            nodes = [*floats, whole, sums, unit, ir.node("Mul", [sums.outputs[0], unit.outputs[0]])]
        else:
            scales = ir.node("Gather", [of_weight, ids])
            columns = ir.node("Transpose", rows.outputs, {"perm": [1, 0]})
            inputs = [units, columns.outputs[0], scale, scales.outputs[0], zero_point]
            nodes = [scales, columns, ir.node("MatMulIntegerToFloat", inputs, domain="com.microsoft")]
        replace_node(self._graph, node, [rows, *nodes])
        self._graph.remove(lookup, safe=True)

    def _replace_lookup(self, node: ir.Node) -> None:
        name, ids = _initializer(node, 0), node.inputs[1]
        assert name is not None
        units, scales = self._quantized_weight(name)
        rows = ir.node("Gather", [units, ids])
        floats = _as_floats(rows.outputs[0])
        if isinstance(self._ranges.get(name), FixedUnits):
            replace_node(self._graph, node, [rows, floats, ir.node("Mul", [floats.outputs[0], scales])])
            return
        of_rows = ir.node("Gather", [scales, ids])
        last_axis = constant(self._graph, "last_axis", np.array([-1], np.int64))
        columns = ir.node("Unsqueeze", [of_rows.outputs[0], last_axis])
        product = ir.node("Mul", [floats.outputs[0], columns.outputs[0]])
        replace_node(self._graph, node, [rows, floats, of_rows, columns, product])

    def _without_added_row(self, node: ir.Node, joined: ir.Node) -> ir.Value:
        """Take the row away that `ShortlistGraph` adds to a projection's input. Return the input that is left."""
        x, last = joined.inputs
        assert x is not None
        assert last is not None
        added = last.producer()
        assert added is not None
        (cut,) = node.outputs[0].consumers()
        node.replace_input_with(0, x)
        replaced, output = cut.outputs[0], node.outputs[0]
        ir.convenience.replace_all_uses_with(replaced, output, replace_graph_outputs=True)
        name, output.shape = replaced.name, replaced.shape
        for each in (cut, joined, added):
            self._graph.remove(each, safe=True)
        output.name = name
        return x

    def _quantized_input(self, node: ir.Node, x: ir.Value, limits: Limits) -> tuple[ir.Value, ...]:
        """Return `x` in units, their scale and zero point; projections of the same input share them."""
        if isinstance(limits, FixedUnits):
            limits = FixedUnits(limits.of_input, ())  # whatever weight it is for
            if (x, limits) not in self._inputs:
                self._inputs[x, limits] = self._fixed_input(node, x, limits.of_input)
        elif (x, limits) not in self._inputs:
            scale = constant(self._graph, f"{x.name}.scale.{len(self._inputs)}", np.array(limits.scale))
            zero = constant(self._graph, f"{x.name}.zero_point.{len(self._inputs)}", np.array(limits.zero_point))
            quantize = ir.node("QuantizeLinear", [x, scale, zero])
            self._graph.insert_before(node, quantize)
            self._inputs[x, limits] = (quantize.outputs[0], scale, zero)
        return self._inputs[x, limits]

    def _fixed_input(self, node: ir.Node, x: ir.Value, unit: float) -> tuple[ir.Value, ...]:
        """As `_quantized_input`. What is negative becomes zero, where it would before."""
        relu = x.producer()
        is_positive = relu is not None and relu.op_type == "Relu" and len(x.uses()) == 1
        zero_point = 0 if is_positive else _MOST_UNITS
        scale = constant(self._graph, f"{x.name}.scale.{len(self._inputs)}", np.array(unit, np.float32))
        zero = constant(self._graph, f"zero_point.{zero_point}", np.array(zero_point, np.uint8))
        most = constant(self._graph, f"most.{zero_point}", np.array(zero_point + _MOST_UNITS, np.uint8))
        quantize = ir.node("QuantizeLinear", [relu.inputs[0] if relu and is_positive else x, scale, zero])
        clip = ir.node("Clip", [quantize.outputs[0], None, most])
        self._graph.insert_before(node, [quantize, clip])
        return clip.outputs[0], scale, zero

    def _quantized_weight(self, name: str) -> tuple[ir.Value, ir.Value]:
        """Return the weight in units, [N, K] where it is looked up in and [K, N] elsewhere, and its scales [N].

        Where units are fixed and those of all outputs are the same, there is one scale.
        """
        if name not in self._weights:
            weights, limits = _float_array(self._graph.initializers[name]), self._ranges.get(name)
            if isinstance(limits, FixedUnits):
                units, scales = _fixed_weight(weights, limits, name)
            else:
                units, scales = quantize_weights(weights)
            if name not in self._looked_up:
                units = np.ascontiguousarray(units.T)
            self._weights[name] = (
                constant(self._graph, name + UNITS, units),
                constant(self._graph, name + SCALES, scales),
            )
        return self._weights[name]

    def _columns(self, node: ir.Node, name: str) -> ir.Value:
        """Return the weight as [K, N]; ONNX Runtime transposes what has to be when it loads the graph."""
        units, _ = self._quantized_weight(name)
        if name not in self._looked_up:
            return units
        if name not in self._transposed:
            transpose = ir.node("Transpose", [units], {"perm": [1, 0]})
            self._graph.insert_before(node, transpose)
            self._transposed[name] = transpose.outputs[0]
        return self._transposed[name]


def _fixed_weight(weights: FloatArray, limits: FixedUnits, name: str) -> tuple[npt.NDArray[np.int8], FloatArray]:
    """Return the units [N, K] that weights were made of, and their scales: [N], or one."""
    scales = np.repeat(np.array(limits.of_weight, np.float32), len(weights) // len(limits.of_weight))  # [N]
    rounded = np.round(weights / scales[:, None])
    if rounded.min() < -128 or rounded.max() > _MOST_UNITS:
        raise ExportError(f"int8 with fixed units: {name} has weights beyond {_MOST_UNITS} units, which int8 has not")
    units = rounded.astype(np.int8)
    return units, scales if len(limits.of_weight) > 1 else np.array(scales[0])


def constant(graph: ir.Graph, name: str, array: npt.NDArray[Any]) -> ir.Value:
    """Return the initializer of that name; it is made of `array` where it is not there yet."""
    if name not in graph.initializers:
        graph.register_initializer(ir.val(name, const_value=ir.tensor(array, name=name)))
    return graph.initializers[name]


def replace_node(graph: ir.Graph, node: ir.Node, nodes: list[ir.Node]) -> None:
    """Put `nodes` in the place of a node; the last one's output takes the name of its."""
    old, new = node.outputs[0], nodes[-1].outputs[0]
    name, new.type, new.shape = old.name, old.type, old.shape
    graph.insert_before(node, nodes)
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    new.name = name


def drop_unused_initializers(graph: ir.Graph) -> None:
    """Remove the initializers that no node reads."""
    unused = [name for name, value in graph.initializers.items() if not value.uses()]
    for name in unused:
        del graph.initializers[name]


def _as_floats(value: ir.Value | None) -> ir.Node:
    return ir.node("Cast", [value], {"to": int(ir.DataType.FLOAT)})


def _float_array(value: ir.Value) -> FloatArray:
    tensor = value.const_value
    assert tensor is not None
    return np.asarray(tensor.numpy(), np.float32)


def _initializer(node: ir.Node, index: int) -> str | None:
    """Return the name of the initializer that is an input of the node."""
    value = node.inputs[index] if index < len(node.inputs) else None
    return value.name if value is not None and value.is_initializer() else None


def _is_token_lookup(node: ir.Node, graph: ir.Graph) -> bool:
    """Whether a node looks up the vectors of tokens that the graph is given, not of positions, nor biases."""
    name = _initializer(node, 0) if node.op_type == "Gather" else None
    if name is None or len(graph.initializers[name].shape or ()) < 2:
        return False
    ids = node.inputs[1]
    return ids is not None and ids in graph.inputs and ids.name != "positions"


def read_int8(graph: ir.Graph) -> tuple[dict[str, FloatArray], dict[str, Limits]]:
    """Return the weights [N, K] that int8 stands for, units × scales, and what `quantize_graph` was given: limits.

    Both are by the names of weights. A float32 graph gives nothing.

    Raises:
        KeyError: the graph lacks a weight's scales.
    """
    weights: dict[str, FloatArray] = {}
    fixed: dict[str, Limits] = {}
    for stored, units in graph.initializers.items():
        if not stored.endswith(UNITS):
            continue
        name = stored.removesuffix(UNITS)
        scales = _array(graph.initializers[name + SCALES])
        is_looked_up = any(node.op_type == "Gather" for node in units.consumers())
        rows = _array(units) if is_looked_up else _array(units).T
        weights[name] = np.ascontiguousarray(rows * scales.reshape(-1, 1))
        if not scales.ndim:
            fixed[name] = FixedUnits(0.0, _parts(scales))
    return weights, fixed | _limits(graph)


def _limits(graph: ir.Graph) -> dict[str, Limits]:
    """The limits of weights that inputs are multiplied with."""
    found: dict[str, Limits] = {}
    for node in graph:
        if node.op_type != "MatMulIntegerToFloat":
            continue
        units, _, scale, scales, zero_point, *_ = node.inputs
        assert units is not None
        assert scales is not None
        name, unit, before = str(scales.name).removesuffix(SCALES), float(_array(scale)), units.producer()
        if before is not None and before.op_type == "Clip":
            found[name] = FixedUnits(unit, _parts(_array(scales)))
        else:
            found[name] = Range.of_units(unit, int(_array(zero_point)))
    return found


def _parts(scales: FloatArray) -> tuple[float, ...]:
    """The scales of a weight with fixed units: one, or those of queries, keys and values."""
    return tuple(scales.reshape(3 if scales.ndim else 1, -1)[:, 0].tolist())


def _array(value: ir.Value | None) -> npt.NDArray[Any]:
    assert value is not None
    assert value.const_value is not None
    return value.const_value.numpy()
