"""A bundle read back is the model it was exported from, and exports to the same bundle again."""

import json
import shutil
from typing import Any

import pytest

from helpers.bundles import random_bundle
from helpers.cuda_bundles import CUDA_MODELS
from helpers.foreign_models import FOREIGN_MODELS, export
from translane_export.bundle_writer import export_checkpoint
from translane_export.errors import ExportError
from translane_export.settings import ExportSettings
from translane_export.sources.readers import find_reader
from translane_server.bundle.bundle import load_bundle

SMALL: dict[str, Any] = {"d_model": 16, "ffn_size": 16, "encoder_layers": 1, "decoder_layers": 2, "max_positions": 16}
GRAPHS = ("encoder.onnx", "decoder.onnx", "alignment.onnx", "weights.bin")


def read(folder):
    return find_reader(folder).read(folder)


@pytest.mark.slow
def test_the_biases_of_suppressed_ids_come_back():
    """They are zeros, which the graph leaves out; the output projection has -inf in their places."""
    exported = export(FOREIGN_MODELS["M2M100"])
    checkpoint = read(exported.bundle.folder)
    assert checkpoint.config.suppressed_ids
    assert (checkpoint.state_dict["output_projection.bias"] == 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "export", [{"weight_storage": "float16"}, {"precision": "fp16"}], ids=["float16 storage", "fp16"]
)
def test_it_exports_to_the_same_bundle_with_no_flag(tmp_path, export):
    settings = {**export, "name": "mine", "license": "CC0", "attribution": "me", "max_source_tokens": 9}
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
    folder = random_bundle(tmp_path / "bundle", **SMALL)
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "activation"),
    [("Marian", "silu"), ("BART", "gelu"), ("FLAN-T5, T5 1.1", "gelu_tanh"), ("mT5", "gelu_tanh"), ("T5", "relu")],
)
def test_activations_that_share_a_kernel_with_a_bias_are_read_back(name, activation):
    folder = CUDA_MODELS[name].bundle().folder
    config = find_reader(folder).read(folder).config
    assert config.activation == activation
    assert config.gated == (name in ("FLAN-T5, T5 1.1", "mT5"))
