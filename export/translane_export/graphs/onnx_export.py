"""From the graph modules to ONNX models, cleaned of what only the exporter needs."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.export import Dim

from translane_export.core.errors import ExportError
from translane_export.graphs.alignment_graph import AlignmentGraph
from translane_export.graphs.encoder_decoder import DecoderGraph, EncoderGraph, GreedyGraph, ShortlistGraph
from translane_export.graphs.exporter_shortcuts import exporter_shortcuts
from translane_export.graphs.head_padding import padded_config
from translane_export.graphs.signatures import NUM_BLOCKS, WITH_LOG_PROBS, own_caches
from translane_export.model import TransformerConfig
from translane_server.bundle.manifest import Graph

OPSET = 21

_ROWS, _SOURCE, _TARGET = Dim("rows"), Dim("source"), Dim("target")
# Whatever differs at run time differs in the examples too, or the exporter would take it for the same number.
_EXAMPLE_ROWS, _EXAMPLE_SOURCE, _EXAMPLE_TARGET, _EXAMPLE_TOKENS = 3, 5, 11, 7


def encoder_example(config: TransformerConfig) -> tuple[Tensor, ...]:
    """Inputs to capture an encoder with."""
    source_ids = torch.full((_EXAMPLE_ROWS, _EXAMPLE_SOURCE), config.eos_id)
    return source_ids, torch.tensor([5, 2, 4], dtype=torch.int32)


def decoder_example(config: TransformerConfig, dtype: torch.dtype, counts: int = 1) -> tuple[Tensor, ...]:
    """Inputs to capture a decoder step with; `counts` says how many of them are numbers of candidates or blocks."""
    own, shape = own_caches(config, _EXAMPLE_TARGET)
    cross = (config.key_value_heads, _EXAMPLE_SOURCE, padded_config(config).head_dim)
    shapes = [shape] * own + [cross] * (2 * config.decoder_layers)
    caches = [torch.zeros(_EXAMPLE_ROWS, *each, dtype=dtype) for each in shapes]
    return (
        torch.full((_EXAMPLE_ROWS,), config.eos_id),
        torch.tensor([0, 6, 2], dtype=torch.int32),
        torch.tensor([5, 2, 4], dtype=torch.int32),
        *(torch.tensor([1]) for _ in range(counts)),  # the exporter would take one tensor for one input
        *caches,
    )


def export_encoder(graph: EncoderGraph, config: TransformerConfig, signature: Graph) -> ir.Model:
    """Export the encoder; its weights are inside the model."""
    return _export(graph, encoder_example(config), ({0: _ROWS, 1: _SOURCE}, {0: _ROWS}), signature)


def export_decoder(graph: DecoderGraph, config: TransformerConfig, signature: Graph) -> ir.Model:
    """Export the decoder step; its weights are inside the model."""
    inputs = [tensor.name for tensor in signature.inputs]
    counts = 2 if NUM_BLOCKS in inputs else 1
    example, dynamic_shapes = decoder_example(config, graph.dtype, counts), _decoder_shapes(config, counts)
    if WITH_LOG_PROBS not in inputs:
        return _export(graph, example, dynamic_shapes, signature)
    position = inputs.index(WITH_LOG_PROBS)
    captured = (*signature.inputs[:position], *signature.inputs[position + 1 :])
    without = signature.model_copy(update={"inputs": captured})
    model = _export(graph, example, dynamic_shapes, without)
    compute_on_request(model, "candidate_log_probs", WITH_LOG_PROBS, position)
    return model


def export_greedy(graph: GreedyGraph, config: TransformerConfig, signature: Graph) -> ir.Model:
    """Export the greedy step; its weights are inside the model."""
    return _export(graph, decoder_example(config, graph.step.dtype, 0), _decoder_shapes(config, 0), signature)


def export_shortlist(graph: ShortlistGraph, config: TransformerConfig, signature: Graph) -> ir.Model:
    """Export the step over a shortlist; its weights are inside the model."""
    *state, count, caches = _decoder_shapes(config, 1)
    plain, tokens = decoder_example(config, graph.step.dtype), Dim("tokens")
    added = (torch.arange(_EXAMPLE_TOKENS), torch.zeros(_EXAMPLE_ROWS, _EXAMPLE_TOKENS))
    example = (*plain[:4], *added, *plain[4:])
    return _export(graph, example, (*state, count, {0: tokens}, {0: _ROWS, 1: tokens}, caches), signature)


def _decoder_shapes(config: TransformerConfig, counts: int) -> tuple[Any, ...]:
    """Return the dynamic shapes of `decoder_example`; what follows the named parameters of `forward` is one tuple."""
    rows = {0: _ROWS}
    count, (_, capacity, _) = own_caches(config, _TARGET)
    own = {0: _ROWS, 2: _TARGET} if capacity is _TARGET else rows
    caches = [own] * count + [{0: _ROWS, 2: _SOURCE}] * (2 * config.decoder_layers)
    others = (*([None] * (counts - 1)), *caches)
    return (rows, rows, rows, *([None] * min(counts, 1)), others)


def export_alignment(
    graph: AlignmentGraph,
    config: TransformerConfig,
    dtype: torch.dtype,
    signature: Graph,
    key_dtype: torch.dtype | None = None,
) -> ir.Model:
    """Export the alignment graph, which has no weights, for queries of `dtype` and keys of that or another type."""
    head_size = padded_config(config).head_dim
    example = (
        torch.zeros(_EXAMPLE_ROWS, config.heads * head_size, dtype=dtype),
        torch.tensor([5, 2, 4], dtype=torch.int32),
        torch.zeros(_EXAMPLE_ROWS, config.key_value_heads, _EXAMPLE_SOURCE, head_size, dtype=key_dtype or dtype),
    )
    rows = {0: _ROWS}
    return _export(graph, example, (rows, rows, {0: _ROWS, 2: _SOURCE}), signature)


def _export(graph: nn.Module, example: tuple[Tensor, ...], dynamic_shapes: tuple[Any, ...], names: Graph) -> ir.Model:
    with torch.no_grad(), _quiet(), exporter_shortcuts():
        try:
            program = torch.onnx.export(
                graph.eval(),
                example,
                dynamo=True,
                opset_version=OPSET,
                dynamic_shapes=dynamic_shapes,
                input_names=[tensor.name for tensor in names.inputs],
                output_names=[tensor.name for tensor in names.outputs],
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            reason = str(error).strip().splitlines()[0]
            raise ExportError(f"PyTorch cannot capture {names.file}: {reason}") from error
    assert program is not None
    model: ir.Model = program.model
    _strip(model)
    for values, tensors in ((model.graph.inputs, names.inputs), (model.graph.outputs, names.outputs)):
        for value, tensor in zip(values, tensors, strict=True):
            value.shape = ir.Shape(tensor.shape)
    return model


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
        for index, value in enumerate(node.outputs):
            value.metadata_props.clear()
            if not value.is_graph_output():
                value.shape = None
                if not value.uses():
                    _leave_out(node, index)


def _leave_out(node: ir.Node, index: int) -> None:
    """Tell ONNX Runtime that an optional output is not wanted, where it can do without.

    On CUDA, GroupQueryAttention needs its keys and values named even if nothing fetches them.
    """
    if node.domain == "com.microsoft" and node.op_type != "GroupQueryAttention":
        node.outputs[index].name = ""


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


_EMPTY = np.zeros((0, 0), np.float32)


def compute_on_request(model: ir.Model, output: str, condition: str, position: int) -> None:
    """Give the graph a scalar bool input `condition`, at `position`; where it is false, `output` has no entries.

    The output is float32, and two-dimensional. ONNX Runtime computes all of a graph, whichever outputs are fetched. So
    what nothing but this output needs goes into a branch of an If node
    (https://onnx.ai/onnx/operators/onnx__If.html), which sees the values of the graph around it.
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
