"""Precisions, weight storage and TorchScript; and a bundle as a checkpoint, which exports to the same bundle."""

import json
import shutil
from typing import Any

import msgspec
import onnx
import pytest
import torch

from helpers.bundles import bundle_model, random_bundle, random_checkpoint
from translane_export.bundle_writer import TORCHSCRIPT_MANIFEST, export_checkpoint
from translane_export.core.errors import ExportError
from translane_export.core.settings import ExportSettings
from translane_export.sources.readers import find_reader
from translane_server.bundle.bundle import load_bundle
from translane_server.bundle.manifest import Manifest, SearchDefaults

MODEL: dict[str, Any] = {"d_model": 64, "ffn_size": 256, "max_positions": 32}


def weights_size(folder):
    return (folder / "weights.bin").stat().st_size


@pytest.mark.slow
def test_float16_storage_halves_the_matrices_and_keeps_fp32_parity(tmp_path):
    full = random_bundle(tmp_path / "full", **MODEL)
    half = random_bundle(tmp_path / "half", export={"weight_storage": "float16"}, **MODEL)
    manifest = load_bundle(half).manifest
    assert weights_size(half) < 0.6 * weights_size(full)
    assert manifest.weight_storage == "float16"
    assert manifest.precision == "fp32"
    assert manifest.parity is not None
    assert manifest.parity.tolerance == 1e-4
    types = {tensor.name: tensor.dtype for tensor in manifest.graphs.decoder.inputs}
    assert types["self_key_0"] == types["cross_value_1"] == "float32"


@pytest.mark.slow
def test_weights_are_stored_once(tmp_path):
    config = {**MODEL, "tie_embeddings": "three-way", "joint": True}
    folder = random_bundle(tmp_path / "bundle", **config)
    model = bundle_model(**config)
    table = MODEL["max_positions"] * MODEL["d_model"] * 4
    matrices = sum(parameter.nbytes for parameter in model.parameters() if parameter.ndim > 1) + table
    everything = sum(parameter.nbytes for parameter in model.parameters()) + table
    tensors = [
        tensor
        for name in ("encoder.onnx", "decoder.onnx")
        for tensor in onnx.load(str(folder / name), load_external_data=False).graph.initializer
        if tensor.external_data
    ]
    regions = {}
    for tensor in tensors:
        entry = {item.key: item.value for item in tensor.external_data}
        assert entry["location"] == "weights.bin"
        assert int(entry["offset"]) % 4096 == 0
        regions[int(entry["offset"])] = int(entry["length"])
    assert matrices <= sum(regions.values()) <= everything
    assert len(tensors) > len(regions)  # both graphs name the position table
    assert not (folder / "target.spm").exists()  # one vocabulary, one file


def test_graphs_say_nothing_about_the_machine_that_made_them(tmp_path):
    folder = random_bundle(tmp_path / "bundle")
    for name in ("encoder.onnx", "decoder.onnx", "alignment.onnx"):
        content = (folder / name).read_bytes()
        assert b".py" not in content
        assert b"/home" not in content
        assert str(tmp_path).encode() not in content


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.load` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_torchscript(tmp_path, precision):
    checkpoint = random_checkpoint(tmp_path / "checkpoint", **MODEL)
    output = tmp_path / "scripted"
    settings = ExportSettings(checkpoint=checkpoint, output=output, format="torchscript", precision=precision)
    manifest = export_checkpoint(settings)
    assert manifest.parity is not None
    assert manifest.parity.token_mismatches == 0
    content = json.loads((output / TORCHSCRIPT_MANIFEST).read_text(encoding="utf-8"))
    assert content.pop("format") == "translane-torchscript"
    assert msgspec.convert(content, Manifest) == manifest
    names = {"encoder.pt", "decoder.pt", "source.spm", "target.spm", "README.md", TORCHSCRIPT_MANIFEST}
    assert {path.name for path in output.iterdir()} == names
    decoder = torch.jit.load(str(output / "decoder.pt"))
    for graph in (decoder, torch.jit.load(str(output / "encoder.pt"))):
        assert "cpu" not in str(graph.inlined_graph)  # it may run on any device
    if precision == "fp32":  # any number of candidates
        caches = [torch.zeros(2, 2, size, 32) for size in (9, 9, 9, 9, 6, 6, 6, 6)]
        ids, log_probs, logits, *_ = decoder(
            torch.tensor([2, 2]), torch.tensor([0, 0]), torch.tensor([6, 1]), torch.tensor([7]), *caches
        )
        assert ids.shape == log_probs.shape == (2, 7)
        torch.testing.assert_close(log_probs, logits.log_softmax(-1).gather(1, ids))


SMALL: dict[str, Any] = {"d_model": 16, "ffn_size": 16, "encoder_layers": 1, "decoder_layers": 2, "max_positions": 16}
GRAPHS = ("encoder.onnx", "decoder.onnx", "alignment.onnx", "weights.bin")


def read(folder):
    return find_reader(folder).read(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    "export", [{"weight_storage": "float16"}, {"precision": "fp16"}], ids=["float16 storage", "fp16"]
)
def test_it_exports_to_the_same_bundle_with_no_flag(tmp_path, export):
    settings = {**export, "name": "mine", "license": "CC0", "attribution": "me", "max_source_tokens": 9}
    settings["decoding_defaults"] = SearchDefaults(beam_size=4, length_penalty=0.6)
    settings["alignment_layer"] = 1
    folder = random_bundle(tmp_path / "bundle", export=settings, **SMALL)
    before = load_bundle(folder).manifest
    again = export_checkpoint(ExportSettings(checkpoint=folder, output=tmp_path / "again", threads=1))
    for name in GRAPHS:
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes(), name
    for field in ("name", "license", "limits", "decoding_defaults", "precision", "weight_storage", "provenance"):
        assert getattr(again, field) == getattr(before, field), field


@pytest.mark.slow
def test_it_may_replace_itself_under_another_name(tmp_path):
    folder = random_bundle(tmp_path / "bundle", **SMALL)
    weights = (folder / "weights.bin").read_bytes()
    export_checkpoint(ExportSettings(checkpoint=folder, output=folder, threads=1, force=True, name="other"))
    assert load_bundle(folder).manifest.name == "other"
    assert (folder / "weights.bin").read_bytes() == weights


def test_what_cannot_be_read_back_is_one_sentence(tmp_path):
    folder = random_bundle(tmp_path / "bundle")
    manifest = json.loads((folder / "manifest.json").read_text())
    swapped = tmp_path / "swapped"
    shutil.copytree(folder, swapped)
    manifest["graphs"]["decoder"]["file"] = "alignment.onnx"
    (swapped / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ExportError, match=r"its graphs have no stack\.|its graphs have no \S+|cannot be read back"):
        read(swapped)
    (folder / "weights.bin").write_bytes(b"")
    with pytest.raises(ExportError, match=r"weights.bin is not the file that was exported"):
        read(folder)
