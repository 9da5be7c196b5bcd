"""Makes an output of a graph one that is computed only when asked for.

ONNX Runtime computes all of a graph, whichever outputs are fetched. What nothing but this output needs goes into a
branch of an If node (https://onnx.ai/onnx/operators/onnx__If.html), which sees the values of the graph around it.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

_EMPTY = np.zeros((0, 0), np.float32)


def compute_on_request(model: ir.Model, output: str, condition: str, position: int) -> None:
    """Give the graph a scalar bool input `condition`, at `position`; where it is false, `output` has no entries.

    The output is float32, and two-dimensional.
    """
    graph = model.graph
    index, asked = next((index, value) for index, value in enumerate(graph.outputs) if value.name == output)
    assert asked is not None
    nodes = _needed_by(graph, asked)
    graph.remove(nodes)
    graph.outputs.pop(index)
    asked.name = f"{output}.computed"
    nothing = ir.node("Constant", [], {"value": ir.tensor(_EMPTY, name=f"{output}.none")})
    nothing.outputs[0].name = f"{output}.none"
    chosen = ir.node(
        "If",
        [ir.Value(name=condition, shape=ir.Shape(()), type=ir.TensorType(ir.DataType.BOOL))],
        {
            "then_branch": ir.Graph([], [asked], nodes=nodes, name=f"{output}.asked_for"),
            "else_branch": ir.Graph([], [nothing.outputs[0]], nodes=[nothing], name=f"{output}.left_out"),
        },
    )
    for value in (chosen.outputs[0], nothing.outputs[0]):
        value.type = ir.TensorType(ir.DataType.FLOAT)
    chosen.outputs[0].name = output
    asked_for = chosen.inputs[0]
    assert asked_for is not None
    graph.inputs.insert(position, asked_for)
    graph.append(chosen)
    graph.outputs.insert(index, chosen.outputs[0])


def _needed_by(graph: ir.Graph, output: ir.Value) -> list[ir.Node]:
    """Return the nodes, in order, whose results nothing but `output` is made of."""
    needed: set[ir.Node] = set()
    for node in reversed(list(graph)):
        results = [value for value in node.outputs if value is output or value.uses() or value.is_graph_output()]
        if results and all(
            value is output or (not value.is_graph_output() and all(use.node in needed for use in value.uses()))
            for value in results
        ):
            needed.add(node)
    return [node for node in graph if node in needed]
