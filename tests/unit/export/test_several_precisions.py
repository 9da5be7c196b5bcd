"""bfloat16 bundles, several precisions in one export, and graphs that need no decomposition."""

import shutil

import onnx_ir as ir
import pytest
import torch
from msgspec.structs import astuple
from torch import nn
from torch.onnx._internal.exporter._registration import ONNXRegistry

from helpers.architectures import ARCHITECTURES
from helpers.bundles import SMALL_SIZES, random_model
from helpers.commands import export as main
from helpers.recorded_exports import read_graph
from translane_export.checks.running import float32_twin
from translane_export.core.checkpoint import load_checkpoint
from translane_export.graphs import exporter_shortcuts
from translane_export.graphs.encoder_decoder import AlignmentGraph, DecoderGraph, EncoderGraph
from translane_export.graphs.onnx_export import export_graph
from translane_export.graphs.signatures import bundle_signatures
from translane_export.graphs.writer import initializers
from translane_export.model import TransformerConfig
from translane_export.sources.readers import find_reader
from translane_server.bundle.bundle import load_bundle
from translane_server.bundle.manifest import Graph

OUTPUTS = {"README.md", "alignment.onnx", "decoder.onnx", "encoder.onnx", "greedy.onnx", "manifest.json", "weights.bin"}


def export(*arguments):
    return main([*map(str, arguments)])


@pytest.fixture(scope="module")
def bf16(checkpoint, tmp_path_factory):
    bundle = tmp_path_factory.mktemp("bf16") / "bundle"
    assert export(checkpoint, "-o", bundle, "--precision", "bf16") == 0
    return bundle


def test_a_bf16_bundle_is_verified_in_float32_and_says_so(bf16):
    manifest = load_bundle(bf16).manifest
    assert (manifest.precision, manifest.weight_storage) == ("bf16", "bfloat16")
    parity = manifest.parity
    assert parity is not None
    assert (parity.tolerance, parity.token_mismatches) == (1e-4, 0)
    assert parity.max_activation is None
    assert "in float32 with the weights rounded to bfloat16" in (bf16 / "README.md").read_text(encoding="utf-8")
    assert {path.name for path in bf16.iterdir()} == OUTPUTS | {"source.spm", "target.spm"}


def test_the_float32_twin_has_the_bundles_own_nodes(bf16):
    bundle = load_bundle(bf16)
    with float32_twin(bundle) as twin:
        assert (twin.manifest.precision, twin.manifest.weight_storage) == ("fp32", "float32")
        for graph in astuple(twin.manifest.graphs):
            if not isinstance(graph, Graph):
                continue
            assert "bfloat16" not in {tensor.dtype for tensor in (*graph.inputs, *graph.outputs)}
            wide, narrow = ir.load(twin.path(graph.file)).graph, ir.load(bundle.path(graph.file)).graph
            assert [node.op_identifier() for node in wide] == [node.op_identifier() for node in narrow]
    assert not twin.folder.exists()


def test_a_bf16_bundle_is_read_back_with_the_same_weights(checkpoint, bf16):
    again = find_reader(bf16).read(bf16)
    expected = load_checkpoint(checkpoint).state_dict
    assert again.state_dict.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(again.state_dict[name].float(), tensor.bfloat16().float()), name
    assert again.settings["precision"] == "bf16"


@pytest.mark.slow
def test_several_precisions_make_a_bundle_each(checkpoint, tmp_path, capsys):
    output = tmp_path / "bundles"
    assert export(checkpoint, "-o", output, "--precision", "int8,fp32") == 0
    assert sorted(path.name for path in output.iterdir()) == ["fp32", "int8"]
    manifests = {name: load_bundle(output / name).manifest for name in ("fp32", "int8")}
    assert all(manifest.precision == name for name, manifest in manifests.items())
    sizes = sum(entry.size for manifest in manifests.values() for entry in manifest.files.values())
    assert capsys.readouterr().out.splitlines()[-1] == f"{output}: 2 bundles, {sizes / 1e6:.1f} MB"
    # int8 is made of the fp32 bundle beside it, and the same as if it were alone
    assert export(checkpoint, "-o", tmp_path / "alone", "--precision", "int8") == 0
    alone = load_bundle(tmp_path / "alone").manifest
    assert {**manifests["int8"].files, "README.md": None} == {**alone.files, "README.md": None}
    assert (manifests["int8"].parity, manifests["int8"].quality) == (alone.parity, alone.quality)
    shutil.rmtree(tmp_path / "alone")
    before = (output / "int8" / "manifest.json").read_bytes()
    assert export(checkpoint, "-o", output, "--precision", "fp32") == 1
    assert "--force replaces it" in capsys.readouterr().err
    # what fails in the second of two leaves both as they were
    broken = ("--precision", "fp32,int8", "--weight-storage", "float16", "--force")
    assert export(checkpoint, "-o", output, *broken) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["bundles"]
    assert (output / "int8" / "manifest.json").read_bytes() == before


CONFIG = TransformerConfig(**{**SMALL_SIZES, "decoder_layers": 1, **ARCHITECTURES["T5 v1.1"]})
SIGNATURES = bundle_signatures(CONFIG, torch.float32, alignment=True)


def encoder():
    return export_graph(EncoderGraph(random_model(CONFIG)), SIGNATURES.encoder)


def decoder():
    return export_graph(DecoderGraph(random_model(CONFIG), alignment_layer=0), SIGNATURES.decoder)


def alignment():
    assert SIGNATURES.alignment
    return export_graph(AlignmentGraph(CONFIG, (1,)), SIGNATURES.alignment)


def weights(model):
    """By name; integers are in the nodes."""
    arrays = {value.name: value.const_value.numpy() for value in initializers(model) if value.const_value is not None}
    return {name: array.tobytes() for name, array in arrays.items() if array.dtype.kind == "f"}


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
    without = export()
    assert not decomposed
    monkeypatch.setattr(exporter_shortcuts, "decompose_if_needed", exporter_shortcuts._decompose)
    again = export()
    assert read_graph(again, set()) == read_graph(without, set())
    assert weights(again) == weights(without)
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
