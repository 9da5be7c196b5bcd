"""From the graph modules to ONNX models, cleaned of what only the exporter needs."""

from __future__ import annotations

import contextlib
import inspect
import logging
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.export import Dim

from translane_export.core.errors import ExportError
from translane_export.graphs.cuda_ops import join_nodes
from translane_export.graphs.exporter_shortcuts import exporter_shortcuts
from translane_export.graphs.onnx_nodes import RuntimeOperators
from translane_export.graphs.signatures import ON_REQUEST
from translane_server.bundle.manifest import Graph, GraphTensor

OPSET = 21

_ROWS, _SOURCE, _TARGET, _TOKENS = Dim("rows"), Dim("source"), Dim("target"), Dim("tokens")
# Of what differs at run time, and its size in the examples: it differs there too, or the exporter would take two sizes
# for the same number.
_DYNAMIC: dict[str, tuple[Dim, int]] = {
    "batch": (_ROWS, 3),
    "rows": (_ROWS, 3),
    "source": (_SOURCE, 5),
    "source_capacity": (_SOURCE, 5),
    "target_capacity": (_TARGET, 11),
    "tokens": (_TOKENS, 7),
}


def example_inputs(signature: Graph) -> tuple[Tensor, ...]:
    """Return inputs to capture a graph of this signature with."""
    return tuple(
        torch.ones([_DYNAMIC[size][1] if isinstance(size, str) else size for size in each.shape], dtype=_dtype(each))
        for each in signature.inputs
    )


def export_graph(graph: nn.Module, signature: Graph, *, for_cuda: bool = False) -> ir.Model:
    """Export a graph, in the CUDA form or not; its weights are inside the model."""
    places = [place for place, tensor in enumerate(signature.inputs) if tensor.name in ON_REQUEST]
    captured = tuple(tensor for tensor in signature.inputs if tensor.name not in ON_REQUEST)
    model = _export(graph, replace(signature, inputs=captured), for_cuda=for_cuda)
    for place in reversed(places):  # the last first: the If of log-probabilities lies in that of candidates
        condition = signature.inputs[place].name
        compute_on_request(model, ON_REQUEST[condition], condition, places[0])
    return model


def _export(graph: nn.Module, signature: Graph, *, for_cuda: bool) -> ir.Model:
    with torch.no_grad(), _quiet(), exporter_shortcuts(), RuntimeOperators(graph, for_cuda=for_cuda):
        try:
            program = torch.onnx.export(
                graph.eval(),
                example_inputs(signature),
                dynamo=True,
                opset_version=OPSET,
                dynamic_shapes=_dynamic_shapes(graph, signature),
                input_names=[tensor.name for tensor in signature.inputs],
                output_names=[tensor.name for tensor in signature.outputs],
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            reason = str(error).strip().splitlines()[0]
            raise ExportError(f"PyTorch cannot capture {signature.file}: {reason}") from error
    assert program is not None
    model: ir.Model = program.model
    if for_cuda:
        join_nodes(model.graph)
    _strip(model)
    for values, tensors in ((model.graph.inputs, signature.inputs), (model.graph.outputs, signature.outputs)):
        for value, tensor in zip(values, tensors, strict=True):
            value.shape = ir.Shape(tensor.shape)
    return model


def _dynamic_shapes(graph: nn.Module, signature: Graph) -> tuple[Any, ...]:
    """Return the dynamic axes of each input; those of what `forward` takes as ``*caches`` are one tuple."""
    shapes = tuple(
        {axis: _DYNAMIC[size][0] for axis, size in enumerate(tensor.shape) if isinstance(size, str)}
        for tensor in signature.inputs
    )
    parameters = inspect.signature(graph.forward).parameters.values()
    named = sum(parameter.kind is not parameter.VAR_POSITIONAL for parameter in parameters)
    return (*shapes[:named], shapes[named:]) if named < len(parameters) else shapes


def _dtype(tensor: GraphTensor) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, tensor.dtype)
    return dtype


def _strip(model: ir.Model) -> None:
    """Drop source paths, stack traces and the shapes of the example from the graph."""
    model.metadata_props.clear()
    model.graph.metadata_props.clear()
    model.graph.doc_string = None
    model.producer_name, model.producer_version = "translane-export", None
    for value in model.graph.initializers.values():
        value.metadata_props.clear()
    for value in (*model.graph.inputs, *model.graph.outputs):
        value.metadata_props.clear()
    for node in model.graph:
        node.metadata_props.clear()
        node.doc_string = None
        for value in node.outputs:
            value.metadata_props.clear()
            if not value.is_graph_output():
                value.shape = None
                # An optional output is not wanted. On CUDA, GroupQueryAttention needs its keys and values named even if
                # nothing fetches them.
                if not value.uses() and node.domain == "com.microsoft" and node.op_type != "GroupQueryAttention":
                    value.name = ""


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence what the exporter says about itself."""
    registration = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = registration.level
    registration.setLevel(logging.ERROR)  # torchvision is not installed
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r".*LeafSpec.*is deprecated", category=FutureWarning)
            warnings.filterwarnings("ignore", message=r"# The axis name: .* will not be used", category=UserWarning)
            yield
    finally:
        registration.setLevel(level)


def compute_on_request(model: ir.Model, outputs: Sequence[str], condition: str, position: int) -> None:
    """Give the graph a scalar bool input `condition`, at `position`; where it is false, `outputs` have no entries.

    The outputs are two-dimensional, and follow each other in this order. ONNX Runtime computes all of a graph,
    whichever outputs are fetched. So what nothing but these outputs is made of goes into a branch of an If node
    (https://onnx.ai/onnx/operators/onnx__If.html), which sees the values of the graph around it. Matrices that only
    these nodes use go with them: ONNX Runtime packs no others within two branches, and multiplies what is not packed
    in another way for a lone row than for several.
    """
    graph = model.graph
    asked = [value for value in graph.outputs if value.name in outputs]
    index = graph.outputs.index(asked[0])
    nodes = _needed_by(graph, asked)
    stored = dict.fromkeys(value for node in nodes for value in node.inputs if value and value.is_initializer())
    weights = [each for each in stored if each.shape and len(each.shape) > 1 and set(each.consumers()) <= set(nodes)]
    graph.remove(nodes)
    for weight in weights:
        del graph.initializers[str(weight.name)]
    for value in asked:
        graph.outputs.remove(value)
    nothing = [ir.node("Constant", [], {"value": ir.tensor(np.zeros((0, 0), _numpy(each)))}) for each in asked]
    asked_for = ir.Value(name=condition, shape=ir.Shape(()), type=ir.TensorType(ir.DataType.BOOL))
    left_out = [node.outputs[0] for node in nothing]
    branches = {
        "then_branch": ir.Graph([], asked, nodes=nodes, initializers=weights, name=f"{condition}.true"),
        "else_branch": ir.Graph([], left_out, nodes=nothing, name=f"{condition}.false"),
    }
    chosen = ir.node("If", [asked_for], branches, num_outputs=len(asked))
    for name, computed, none, value in zip(outputs, asked, left_out, chosen.outputs, strict=True):
        computed.name, none.name, value.name = f"{name}.computed", f"{name}.none", name
        none.type = value.type = computed.type
    graph.inputs.insert(position, asked_for)
    graph.append(chosen)
    for offset, value in enumerate(chosen.outputs):
        graph.outputs.insert(index + offset, value)


def _numpy(value: ir.Value) -> np.dtype[Any]:
    assert value.dtype is not None
    return value.dtype.numpy()


def _needed_by(graph: ir.Graph, outputs: Sequence[ir.Value]) -> list[ir.Node]:
    """Return the nodes, in order, whose results nothing but `outputs` is made of."""
    needed: set[ir.Node] = set()
    outer = {  # the nodes in branches, which use values of the graph around them
        inner: node
        for node in graph
        for attribute in node.attributes.values()
        if attribute.type == ir.AttributeType.GRAPH
        for inner in attribute.as_graph().all_nodes()
    }
    for node in reversed(list(graph)):
        results = [value for value in node.outputs if value.uses() or value.is_graph_output()]
        if results and all(
            (value in outputs or not value.is_graph_output())
            and all(outer.get(use.node, use.node) in needed for use in value.uses())
            for value in results
        ):
            needed.add(node)
    return [node for node in graph if node in needed]
