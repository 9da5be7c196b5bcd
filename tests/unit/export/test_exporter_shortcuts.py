"""Graphs that are exported without a decomposition are the same as with one, and others are decomposed."""

import pytest
import torch
from torch import nn
from torch.onnx._internal.exporter import _fx_passes
from torch.onnx._internal.exporter._registration import ONNXRegistry

from helpers.architectures import ARCHITECTURES
from helpers.bundles import SMALL_SIZES, random_model
from helpers.recorded_exports import read_graph
from translane_export.graphs import exporter_shortcuts
from translane_export.graphs.alignment_graph import AlignmentGraph
from translane_export.graphs.encoder_decoder import DecoderGraph, EncoderGraph
from translane_export.graphs.onnx_export import export_alignment, export_decoder, export_encoder
from translane_export.graphs.signatures import alignment_signature, decoder_signature, encoder_signature
from translane_export.model import TransformerConfig

FLOAT = torch.float32
CONFIG = TransformerConfig(**{**SMALL_SIZES, "decoder_layers": 1, **ARCHITECTURES["T5 v1.1"]})


def encoder():
    return export_encoder(EncoderGraph(random_model(CONFIG)), CONFIG, encoder_signature(CONFIG, FLOAT, "graph"))


def decoder():
    return export_decoder(DecoderGraph(random_model(CONFIG)), CONFIG, decoder_signature(CONFIG, FLOAT, "graph"))


def alignment():
    return export_alignment(AlignmentGraph(CONFIG, (1,)), CONFIG, FLOAT, alignment_signature(CONFIG, FLOAT, "graph"))


@pytest.fixture
def decomposed(monkeypatch):
    """The programs that PyTorch decomposes while a test runs."""
    programs, decompose = [], exporter_shortcuts._decompose

    def recorded(program, registry):
        programs.append(program)
        return decompose(program, registry)

    monkeypatch.setattr(exporter_shortcuts, "_decompose", recorded)
    return programs


@pytest.mark.slow
@pytest.mark.parametrize("export", [encoder, decoder, alignment])
def test_a_graph_is_the_same_without_a_decomposition(monkeypatch, decomposed, export):
    """Of the architecture whose graphs have every operator that is rewritten."""
    without = read_graph(export(), set())
    assert not decomposed
    monkeypatch.setattr(exporter_shortcuts, "decompose_if_needed", exporter_shortcuts._decompose)
    assert read_graph(export(), set()) == without
    assert len(decomposed) == 1


class Untranslated(nn.Module):
    def forward(self, x):
        return torch.hypot(x, x)


class Mutating(nn.Module):
    def forward(self, x):
        return x.clone().add_(1)


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*is deprecated:FutureWarning")
@pytest.mark.parametrize("module", [Untranslated, Mutating])
def test_what_has_no_translation_is_decomposed(decomposed, module):
    program = torch.export.export(module().eval(), (torch.ones(2),))
    found = exporter_shortcuts.decompose_if_needed(program, ONNXRegistry.from_torchlib())
    assert decomposed == [program]
    assert not {str(node.target) for node in found.graph.nodes} & {"aten.hypot.default", "aten.add_.Tensor"}


def test_the_exporter_is_left_as_it_was():
    before = _fx_passes.decompose_with_registry
    with pytest.raises(ZeroDivisionError), exporter_shortcuts.exporter_shortcuts():
        1 / 0  # noqa: B018 raised on purpose
    assert _fx_passes.decompose_with_registry is before
