"""Captures a model's graphs and writes them, with the weights they share, into a bundle's folder."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import torch
from torch import nn

from translane_export.core.settings import Format
from translane_export.graphs import torchscript
from translane_export.graphs.encoder_decoder import (
    AlignmentGraph,
    DecoderGraph,
    EncoderGraph,
    GreedyGraph,
    ShortlistGraph,
)
from translane_export.graphs.head_padding import pad_heads
from translane_export.graphs.numerics import Numerics, WeightStorage
from translane_export.graphs.onnx_export import export_graph
from translane_export.graphs.signatures import bundle_signatures
from translane_export.model import Transformer
from translane_server.bundle.manifest import Alignment, Graph, Graphs

WEIGHTS = "weights.bin"

_INLINE_BELOW = 1024  # bytes
_ALIGNMENT = 4096  # a page


def write_graphs(
    form: Format,
    reference: Transformer,
    numerics: Numerics,
    alignment: Alignment | None,
    folder: Path,
    log: Callable[[str], None],
    *,
    shortlist: bool = False,
) -> Graphs:
    """Write the graphs of `reference`, which computes in float32 with the weights to store; return what they are.

    With a `shortlist`, there is also a step over the tokens of shortlists.

    Raises:
        ExportError: PyTorch cannot capture one.
    """
    config = reference.config
    model = reference if numerics.dtype == torch.float32 else copy.deepcopy(reference).to(numerics.dtype)
    model = pad_heads(model)  # once for both graphs
    for_cuda = numerics.for_cuda and form == "onnx"
    encoder = EncoderGraph(model, for_cuda=for_cuda)
    decoder = DecoderGraph(model, alignment.layer if alignment else None, for_cuda=for_cuda)
    graphs = bundle_signatures(
        config,
        numerics.dtype,
        form=form,
        for_cuda=for_cuda,
        vocabulary_blocks=decoder.vocabulary_blocks,
        alignment=alignment is not None,
        shortlist=shortlist,
    )
    if form == "torchscript":
        log("tracing the encoder and the decoder step")
        torchscript.save_torchscript(encoder, decoder, graphs, folder)
        return graphs
    models: dict[str, ir.Model] = {}  # by file
    captured: tuple[tuple[str, nn.Module, Graph | None], ...] = (
        ("the encoder", encoder, graphs.encoder),
        ("the decoder step", decoder, graphs.decoder),
        ("the greedy step", GreedyGraph(decoder), graphs.greedy),
        ("the step over shortlists", ShortlistGraph(decoder), graphs.shortlist),
    )
    for what, graph, signature in captured:
        if signature:
            log(f"capturing {what}")
            models[signature.file] = export_graph(graph, signature, for_cuda=for_cuda)
    log("storing the weights")
    share_weights(models.values(), folder / WEIGHTS, numerics.storage)
    if alignment and graphs.alignment:
        aligning = AlignmentGraph(config, alignment.heads, for_cuda=for_cuda)
        models[graphs.alignment.file] = export_graph(aligning, graphs.alignment, for_cuda=for_cuda)
    for name, model_of_graph in models.items():
        ir.save(model_of_graph, folder / name)
    return graphs


def share_weights(models: Iterable[ir.Model], path: Path, storage: WeightStorage) -> None:
    """Move the weights of `models` to the new file `path`, which they share; the graphs must be saved beside it.

    Tensors with the same bytes are stored once, whichever graph they belong to. Each starts at a page boundary, so that
    the file can be memory-mapped (https://onnx.ai/onnx/repo-docs/ExternalData.html). Small ones stay in the graph.

    With float16 storage every float32 matrix is stored as float16 and cast back by the graph, which ONNX Runtime does
    once, when it loads it. Vectors (biases and norms, a thousandth of a model) stay as they are.
    """
    offsets: dict[bytes, int] = {}  # in the file, by digest
    with path.open("xb") as file:
        for model in models:
            for value in initializers(model):
                if storage == "float16" and _is_matrix(value):
                    value = _cast_from_float16(value)
                tensor = value.const_value
                assert tensor is not None
                if tensor.nbytes < _INLINE_BELOW:
                    continue
                content = _bytes(tensor)
                digest = hashlib.sha256(content).digest()
                if digest not in offsets:
                    file.write(bytes(-file.tell() % _ALIGNMENT))
                    offsets[digest] = file.tell()
                    file.write(content)
                value.const_value = ir.ExternalTensor(
                    path.name,
                    offsets[digest],
                    tensor.nbytes,
                    tensor.dtype,
                    shape=ir.Shape(tensor.shape.numpy()),
                    name=str(value.name),
                    base_dir=path.parent,
                )


def initializers(model: ir.Model) -> list[ir.Value]:
    """Return the weights and constants of a graph and of its branches."""
    return [value for graph in model.graphs() for value in graph.initializers.values()]


def _bytes(tensor: ir.TensorProtocol) -> memoryview:
    """Return what a little-endian file holds of the tensor; its own memory, where it is contiguous."""
    array = np.ascontiguousarray(tensor.numpy())
    return array.astype(array.dtype.newbyteorder("<"), copy=False).reshape(-1).view(np.uint8).data


def _is_matrix(value: ir.Value) -> bool:
    tensor = value.const_value
    return tensor is not None and tensor.dtype == ir.DataType.FLOAT and len(tensor.shape) >= 2


def _cast_from_float16(value: ir.Value) -> ir.Value:
    """Replace the initializer `value` by a float16 one and a Cast node; return the new initializer."""
    graph = value.graph
    assert graph is not None
    assert value.const_value is not None
    halves: npt.NDArray[np.float16] = value.const_value.numpy().astype(np.float16)
    name = str(value.name)
    del graph.initializers[name]
    stored = ir.Value(name=f"{name}.float16", shape=value.shape, type=ir.TensorType(ir.DataType.FLOAT16))
    stored.const_value = ir.tensor(halves, name=stored.name)
    graph.register_initializer(stored)
    cast = ir.node("Cast", [stored], {"to": int(ir.DataType.FLOAT)})
    output = cast.outputs[0]
    output.name, output.dtype, output.shape = name, ir.DataType.FLOAT, value.shape
    value.name = None
    ir.convenience.replace_all_uses_with(value, output)
    graph.insert_before(graph[0], cast)
    return stored
