"""bfloat16 bundles, and several precisions in one export."""

import gc
import json
import weakref

import pytest
import torch

from helpers.commands import export as main
from translane_export.checkpoint import load_checkpoint
from translane_export.checks import float32_twin
from translane_export.graphs.numerics import choose_numerics, verified_as
from translane_export.graphs.writer import write_graphs
from translane_export.sources.readers import find_reader
from translane_export.torch_model import as_stored, build_model
from translane_server.bundle.bundle import load_bundle

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
    assert parity.tolerance == 1e-4
    assert parity.token_mismatches == 0
    assert parity.max_activation is None
    assert "in float32 with the weights rounded to bfloat16" in (bf16 / "README.md").read_text(encoding="utf-8")


def test_nothing_of_the_float32_twin_is_left(bf16):
    assert {path.name for path in bf16.iterdir()} == OUTPUTS | {"source.spm", "target.spm"}


@pytest.mark.slow
def test_the_float32_twin_does_not_keep_the_model(checkpoint, bf16):
    """It may take half of the memory, and ONNX Runtime needs that."""
    numerics = verified_as(choose_numerics("bf16", None))
    reference = as_stored(build_model(load_checkpoint(checkpoint)), numerics)
    model = weakref.ref(reference)
    with float32_twin.float32_twin(load_bundle(bf16), reference, numerics, lambda _line: None) as twin:
        del reference
        gc.collect()
        assert model() is None
        assert twin.manifest.weight_storage == "float32"
    assert not twin.folder.exists()


def test_a_bf16_bundle_is_read_back_with_the_same_weights(checkpoint, bf16):
    again = find_reader(bf16).read(bf16)
    expected = load_checkpoint(checkpoint).state_dict
    assert again.state_dict.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(again.state_dict[name].float(), tensor.bfloat16().float()), name
    assert again.settings["precision"] == "bf16"


@pytest.mark.slow
def test_a_bf16_graph_that_is_not_the_verified_one_is_refused(checkpoint, tmp_path, monkeypatch, capsys):
    def write_others(form, reference, numerics, *others):
        reference.config = reference.config.__class__(**{**vars(reference.config), "logit_scale": 0.5})
        return write_graphs(form, reference, numerics, *others)

    monkeypatch.setattr(float32_twin, "write_graphs", write_others)
    assert export(checkpoint, "-o", tmp_path / "bundle", "--precision", "bf16") == 1
    assert "is not the one that was verified" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--weight-storage", "float16"], "precision bf16 stores its weights as bfloat16; leave --weight-storage out"),
        (["--format", "torchscript"], "TorchScript files are fp32 or fp16; bf16 is a precision of ONNX bundles"),
    ],
)
def test_bf16_has_one_storage_and_one_format(checkpoint, tmp_path, capsys, flags, problem):
    assert export(checkpoint, "-o", tmp_path / "bundle", "--precision", "bf16", *flags) == 1
    assert capsys.readouterr().err.endswith(f"translane export: {problem}\n")


def test_only_bf16_is_verified_as_something_else():
    numerics = verified_as(choose_numerics("bf16", None))
    assert numerics.for_cuda
    assert numerics.precision == "fp32"
    for precision in ("fp32", "fp16"):
        assert verified_as(choose_numerics(precision, None)) == choose_numerics(precision, None)


@pytest.mark.slow
def test_several_precisions_make_a_bundle_each(checkpoint, tmp_path, capsys):
    output = tmp_path / "bundles"
    assert export(checkpoint, "-o", output, "--precision", "fp16,int8") == 0
    assert sorted(path.name for path in output.iterdir()) == ["fp16", "int8"]
    sizes = 0
    for name in ("fp16", "int8"):
        manifest = load_bundle(output / name).manifest
        assert manifest.precision == name
        sizes += sum(entry.size for entry in manifest.files.values())
    assert capsys.readouterr().out.splitlines()[-1] == f"{output}: 2 bundles, {sizes / 1e6:.1f} MB"
    before = (output / "int8" / "manifest.json").read_bytes()
    assert export(checkpoint, "-o", output, "--precision", "fp32") == 1
    assert "--force replaces it" in capsys.readouterr().err
    # what fails in the second of two leaves both as they were
    broken = ("--precision", "fp32,int8", "--weight-storage", "float16", "--force")
    assert export(checkpoint, "-o", output, *broken) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["bundles"]
    assert (output / "int8" / "manifest.json").read_bytes() == before
    assert export(checkpoint, "-o", output, "--precision", "fp32", "--force") == 0
    assert json.loads((output / "manifest.json").read_text(encoding="utf-8"))["precision"] == "fp32"


@pytest.mark.parametrize("precision", ["fp64", "fp16,", "int8,int8", ""])
def test_what_is_no_list_of_different_precisions_is_refused(checkpoint, tmp_path, capsys, precision):
    assert export(checkpoint, "-o", tmp_path / "bundle", "--precision", precision) == 2
    assert "--precision: it should be one of fp32, fp16, bf16, int8, or different ones" in capsys.readouterr().err


def test_a_test_set_needs_int8_among_several(checkpoint, tmp_path, capsys):
    assert export(checkpoint, "-o", tmp_path / "b", "--precision", "fp32,fp16", "--test", tmp_path / "x.tsv") == 1
    assert "--test is for precision int8" in capsys.readouterr().err
