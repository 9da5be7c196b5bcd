"""Joins nodes of a captured graph into the operators that ONNX Runtime's CUDA provider has: one kernel for several.

A residual's addition is joined to the norm after it, and a projection's bias to what comes after the projection.
"""

from __future__ import annotations

import onnx_ir as ir

_NORMS = {
    "LayerNormalization": "SkipLayerNormalization",
    "SimplifiedLayerNormalization": "SkipSimplifiedLayerNormalization",
}
_GELUS = {"Gelu": "BiasGelu", "FastGelu": "FastGelu"}
_DOMAIN = "com.microsoft"
_TOTAL = 3  # output of the joined norms: the sum that is normalised


def join_nodes(graph: ir.Graph) -> None:
    """Join what can be joined, in place."""
    for node in list(graph):
        if node.op_type in _NORMS:
            _join_addition(graph, node)
        elif node.op_type in _GELUS and (bias := _take_bias(node.inputs[0])):
            joined = ir.node(_GELUS[node.op_type], [node.inputs[0], *bias], domain=_DOMAIN)
            _replace(graph, [node], joined, {node.outputs[0]: joined.outputs[0]})


def _join_addition(graph: ir.Graph, norm: ir.Node) -> None:
    """Join norm(x + sublayer(x)). What is added to embeddings has another shape, and stays."""
    total, *parameters = norm.inputs
    addition = total.producer() if total is not None else None
    if total is None or addition is None or addition.op_type != "Add":
        return
    output, residual = addition.inputs
    assert output is not None
    sublayer = output.producer()
    if sublayer is None or sublayer.op_type not in ("Gemm", "Relu"):  # of a recurrent unit
        return
    inputs = [output, residual, *parameters, *_take_bias(output)]
    epsilon = {"epsilon": norm.attributes.get_float("epsilon")}
    joined = ir.node(_NORMS[norm.op_type], inputs, epsilon, domain=_DOMAIN, num_outputs=_TOTAL + 1)
    _replace(graph, [norm, addition], joined, {norm.outputs[0]: joined.outputs[0], total: joined.outputs[_TOTAL]})


def _take_bias(value: ir.Value | None) -> list[ir.Value]:
    """Take the bias off the projection that gives a value, where it has one; return it."""
    projection = value.producer() if value is not None else None
    if projection is None or projection.op_type != "Gemm" or len(projection.inputs) < 3:
        return []
    bias = projection.inputs[2]
    projection.resize_inputs(2)
    for default in ("alpha", "beta", "transA"):
        projection.attributes.pop(default, None)
    return [] if bias is None else [bias]


def _replace(graph: ir.Graph, nodes: list[ir.Node], joined: ir.Node, outputs: dict[ir.Value, ir.Value]) -> None:
    graph.insert_before(nodes[0], joined)
    for old, new in outputs.items():
        name, new.type, new.shape = old.name, old.type, old.shape
        ir.convenience.replace_all_uses_with(old, new)
        old.name, new.name = None, name
    graph.remove(nodes, safe=True)
