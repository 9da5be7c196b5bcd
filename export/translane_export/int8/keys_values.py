"""Keeps the keys and values of cross-attention as int8: a sentence's are computed once, and read by each of its steps.

They are most of what a step reads beside the weights. Between two steps they leave the processor's caches, so that a
quarter of the bytes is worth more than what it takes to make floats of them. Self-attention's stay float32: they are
shorter, and each step would have to round its own. Each tensor has one scale, which is fixed when the bundle is
written; zero stands for zero. ONNX Runtime's GroupQueryAttention reads them as they are
(https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md, its KV cache quantization) and, unlike
float32 ones, takes them only where it returns them, too.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from translane_export.int8.quantize import constant, replace_node

LARGEST = 127
"""Units of the number that is farthest from zero."""

_SCALE, _ZERO_POINT = ".scale", ".zero_point"  # after the name of keys or values
_TYPES: Mapping[str, str | int] = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 8}
_KEYS, _VALUES, _KEY_SCALE = 3, 4, 12  # inputs of GroupQueryAttention; the scale of the values follows


def quantize_encoder(model: ir.Model, scales: Mapping[str, np.float32]) -> None:
    """Have the encoder's graph give int8, in place: in units of these scales, by the names of its outputs."""
    graph = model.graph
    for output in graph.outputs:
        name = str(output.name)
        split = output.producer()
        assert split is not None
        assert split.op_type == "Transpose", "heads are put apart last"
        scale = constant(graph, name + _SCALE, np.array(scales[name]))
        zero_point = constant(graph, name + _ZERO_POINT, np.array(0, np.int8))
        # Before heads are put apart, because bytes are moved faster than floats, and ONNX Runtime would make floats of
        # them again for a Reshape.
        first = _shaping(split)
        quantize = ir.node("QuantizeLinear", [first.inputs[0], scale, zero_point])
        graph.insert_before(first, quantize)
        first.replace_input_with(0, quantize.outputs[0])
        first.outputs[0].dtype = output.dtype = ir.DataType.INT8


def read_scales(graph: ir.Graph) -> dict[str, np.float32]:
    """Return the scales of what an encoder's graph gives, by the names of outputs. A float32 graph gives nothing."""
    scales = {}
    for output in graph.outputs:
        stored = graph.initializers.get(f"{output.name}{_SCALE}")
        if stored is not None and stored.const_value is not None:
            scales[str(output.name)] = np.float32(stored.const_value.numpy())
    return scales


def _shaping(split: ir.Node) -> ir.Node:
    """Return the Reshape before the node that puts heads apart; without one, this node."""
    shaped = split.inputs[0]
    shaping = shaped.producer() if shaped is not None else None
    return shaping if shaping is not None and shaping.op_type == "Reshape" else split


def quantize_decoder(model: ir.Model, scales: Mapping[str, np.float32]) -> None:
    """Have the decoder's graph take int8, in place: in units of these scales, by the names of its inputs."""
    graph = model.graph
    for node in list(graph):
        if node.op_type == "GroupQueryAttention" and node.inputs[_KEYS] in graph.inputs:
            names = [str(value.name) for value in node.inputs[_KEYS : _VALUES + 1] if value is not None]
            if all(name in scales for name in names):
                _replace_attention(graph, node, names, scales)


def _replace_attention(graph: ir.Graph, node: ir.Node, names: list[str], scales: Mapping[str, np.float32]) -> None:
    """Put attention over int8 in the place of a node; what it returns are outputs of the graph."""
    of_keys, of_values = (constant(graph, name + _SCALE, np.array([scales[name]])) for name in names)
    inputs = [*node.inputs, *[None] * (_KEY_SCALE - len(node.inputs)), of_keys, of_values]
    attributes = [*node.attributes.values(), *ir.convenience.convert_attributes(_TYPES)]
    attention = ir.Node(node.domain, node.op_type, inputs, attributes, num_outputs=3)
    replace_node(graph, node, [attention])
    for name, returned, given in zip(names, attention.outputs[1:], inputs[_KEYS : _VALUES + 1], strict=True):
        assert given is not None
        given.dtype = ir.DataType.INT8
        returned.name, returned.type, returned.shape = f"present_{name}", ir.TensorType(ir.DataType.INT8), given.shape
        graph.outputs.append(returned)
