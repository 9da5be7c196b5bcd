"""Captures a model's graphs and writes them, with the weights they share, into a bundle's folder."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import onnx_ir as ir
import torch
from torch import nn

from translane_export.core.settings import Format
from translane_export.graphs import torchscript
from translane_export.graphs.alignment_graph import AlignmentGraph
from translane_export.graphs.encoder_decoder import DecoderGraph, EncoderGraph, GreedyGraph, ShortlistGraph
from translane_export.graphs.head_padding import pad_heads
from translane_export.graphs.numerics import Numerics
from translane_export.graphs.onnx_export import export_graph
from translane_export.graphs.shared_weights import share_weights
from translane_export.graphs.signatures import bundle_signatures
from translane_export.model import Transformer
from translane_server.bundle.manifest import Alignment, Graph, Graphs

WEIGHTS = "weights.bin"


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
