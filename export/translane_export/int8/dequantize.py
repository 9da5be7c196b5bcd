"""Turns int8 graphs back into float32 ones with the same weights, which stay rounded: see `quantize`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from translane_export.int8.quantize import SCALES, UNITS, drop_unused_initializers, replace_node
from translane_export.ranges import Range


def dequantize_graph(model: ir.Model) -> dict[str, Range]:
    """Undo `quantize_graph`, in place, but for the rounding; return what it was given: range by weight.

    A graph that is not quantized stays as it is.

    Raises:
        KeyError: the graph lacks a weight's scales.
    """
    return _GraphDequantizer(model.graph).run()


class _GraphDequantizer:
    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._ranges: dict[str, Range] = {}

    def run(self) -> dict[str, Range]:
        for node in list(self._graph):
            if node.op_type == "MatMulIntegerToFloat":
                self._restore_projection(node)
            elif node.op_type == "Gather" and _is_units(node.inputs[0]):
                self._restore_lookup(node)
        self._drop_unused_nodes()
        drop_unused_initializers(self._graph)
        return self._ranges

    def _restore_projection(self, node: ir.Node) -> None:
        quantized, columns, scale, _, zero_point, *_ = node.inputs
        bias = node.inputs[6] if len(node.inputs) > 6 else None
        assert quantized is not None
        assert columns is not None
        quantize, transpose = quantized.producer(), columns.producer()
        units = columns if transpose is None else transpose.inputs[0]
        assert quantize is not None
        weight = self._weight(units, transposed=transpose is None)
        self._ranges[str(weight.name)] = Range.of_units(float(_array(scale)), int(_array(zero_point)))
        inputs = [quantize.inputs[0], weight, *([] if bias is None else [bias])]
        replace_node(self._graph, node, [ir.node("Gemm", inputs, {"transB": 1})])

    def _restore_lookup(self, node: ir.Node) -> None:
        (cast,) = node.outputs[0].consumers()
        (product,) = cast.outputs[0].consumers()
        weight = self._weight(node.inputs[0], transposed=False)
        replace_node(self._graph, product, [ir.node("Gather", [weight, node.inputs[1]])])

    def _weight(self, units: ir.Value | None, *, transposed: bool) -> ir.Value:
        """Return the float32 weight [N, K] that the units [N, K], or transposed [K, N], stand for."""
        assert units is not None
        name = str(units.name).removesuffix(UNITS)
        if name not in self._graph.initializers:
            array = _array(units).T if transposed else _array(units)
            scales = _array(self._graph.initializers[name + SCALES])
            weight = np.ascontiguousarray(array * scales[:, None])
            self._graph.register_initializer(ir.val(name, const_value=ir.tensor(weight, name=name)))
        return self._graph.initializers[name]

    def _drop_unused_nodes(self) -> None:
        for node in reversed(list(self._graph)):
            if not any(value.uses() or value.is_graph_output() for value in node.outputs):
                self._graph.remove(node, safe=True)


def _is_units(value: ir.Value | None) -> bool:
    return value is not None and value.is_initializer() and str(value.name).endswith(UNITS)


def _array(value: ir.Value | None) -> npt.NDArray[Any]:
    assert value is not None
    assert value.const_value is not None
    return value.const_value.numpy()
