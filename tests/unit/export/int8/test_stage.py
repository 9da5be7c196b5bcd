"""`--precision int8`: what is written, what is refused, and what an int8 bundle is read back as."""

import gzip
import json
from types import SimpleNamespace

import numpy as np
import pytest

from helpers.bundles import SOURCES, TARGETS
from helpers.commands import export as main
from translane_export.core.ranges import Range, Ranges
from translane_export.int8 import stage
from translane_export.int8.calibration import measure_ranges
from translane_export.sources.bundle import read_bundle
from translane_server.bundle.bundle import load_bundle

pytestmark = pytest.mark.slow

FLAGS = ("--precision", "int8", "--threads", "1")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """A test set."""
    path = tmp_path_factory.mktemp("pairs") / "test.tsv.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(f"{source}\t{target}\n" for source, target in zip(SOURCES, TARGETS, strict=True))
    return path


@pytest.fixture(scope="module")
def bundle(checkpoint, tmp_path_factory, pairs):
    """An int8 bundle whose translations are scored."""
    output = tmp_path_factory.mktemp("int8") / "bundle"
    assert main([str(checkpoint), "-o", str(output), *FLAGS, "--test", str(pairs)]) == 0
    return output


def test_the_manifest_says_so(bundle):
    manifest = load_bundle(bundle).manifest
    assert (manifest.precision, manifest.weight_storage) == ("int8", "int8")
    assert manifest.parity is not None
    assert manifest.parity.token_mismatches == 0
    quality = manifest.quality
    assert quality is not None
    assert quality.bleu is not None
    assert quality.fp32_bleu is not None
    assert quality.tested == len(SOURCES)
    assert quality.sentences == 2 * len(SOURCES)  # those to calibrate with, too
    assert 0 <= quality.unchanged <= quality.sentences
    assert quality.fp32_bleu - quality.bleu <= 0.5
    taken = {tensor.name: tensor.dtype for tensor in manifest.graphs.decoder.inputs}
    assert {taken[f"self_{part}_0"] for part in ("key", "value")} == {"float32"}
    assert {taken[f"cross_{part}_0"] for part in ("key", "value")} == {"int8"}
    assert {tensor.dtype for tensor in manifest.graphs.encoder.outputs} == {"int8"}
    card = (bundle / "README.md").read_text(encoding="utf-8")
    assert f"{quality.unchanged} of {quality.sentences} sentences translate to the same tokens" in card
    assert "weights stored as int8" in card


def test_an_int8_bundle_is_exported_as_the_same_one_again_or_in_fp32(bundle, tmp_path, pairs, capsys):
    again = tmp_path / "again"
    assert main([str(bundle), "-o", str(again), "--threads", "1"]) == 0
    for name in ("encoder.onnx", "decoder.onnx", "alignment.onnx", "weights.bin"):
        assert (again / name).read_bytes() == (bundle / name).read_bytes(), name
    assert load_bundle(again).manifest.quality == load_bundle(bundle).manifest.quality
    assert main([str(bundle), "-o", str(tmp_path / "none"), "--test", str(pairs)]) == 1
    assert f"{bundle} is int8 already" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
    floats = tmp_path / "floats"
    assert main([str(bundle), "-o", str(floats), "--precision", "fp32", "--threads", "1"]) == 0
    manifest = load_bundle(floats).manifest
    assert (manifest.precision, manifest.weight_storage, manifest.quality) == ("fp32", "float32", None)
    one, other = read_bundle(bundle), read_bundle(floats)
    assert one.config == other.config
    assert one.state_dict.keys() == other.state_dict.keys()
    for name, tensor in one.state_dict.items():
        np.testing.assert_array_equal(tensor.numpy(), other.state_dict[name].numpy(), name)


def test_one_that_is_quantized_as_before_is_run_before_it_is_written(bundle, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(stage, "quantize_decoder", lambda _model, _scales: None)
    assert main([str(bundle), "-o", str(tmp_path / "again"), "--threads", "1"]) == 1
    assert "decoder.onnx has other outputs than the manifest says" in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "again").exists()


def test_a_loss_that_is_too_large_is_refused_and_nothing_is_left(checkpoint, tmp_path, pairs, capsys, monkeypatch):
    """With ranges in which nothing but zero has room."""

    def useless(model, of):
        found = measure_ranges(model, of)
        encoder, decoder = (dict.fromkeys(graph, Range(0.0, 1e-9)) for graph in (found.encoder, found.decoder))
        return Ranges({**encoder}, {**decoder}, found.keys_values)

    monkeypatch.setattr(stage, "measure_ranges", useless)
    scores: list[float] = []

    def by_characters(texts, _references, _language):
        """Random weights translate nothing, and score 0 whatever is done to them: this counts different characters."""
        scores.append(float(len(set("".join(texts)))))
        return SimpleNamespace(bleu=scores[-1])

    monkeypatch.setattr(stage, "score", by_characters)
    flags = [str(checkpoint), "-o", str(tmp_path / "out" / "bundle"), *FLAGS, "--test", str(pairs)]
    assert main(flags) == 1
    sentence = capsys.readouterr().err.splitlines()[-1]
    first, last = scores[0], scores[-1]
    assert sentence == (
        f"translane export: int8 loses {first - last:.2f} BLEU ({first:.2f} to {last:.2f}), and --max-bleu-loss is 0.5;"
        " more or better --samples may help"
    )
    assert list(tmp_path.iterdir()) == []


def test_without_a_test_set_it_says_that_nothing_is_scored(checkpoint, tmp_path, capsys):
    samples = tmp_path / "samples.txt"
    samples.write_text("")  # random ids are what there is to calibrate with
    output = tmp_path / "bundle"
    assert main([str(checkpoint), "-o", str(output), *FLAGS, "--samples", str(samples)]) == 0
    assert "without --test FILE no BLEU tells what int8 costs" in capsys.readouterr().err
    quality = load_bundle(output).manifest.quality
    assert quality is not None
    assert quality.sentences > 0
    assert (quality.tested, quality.bleu, quality.fp32_bleu) == (0, None, None)
    assert "quality" in json.loads((output / "manifest.json").read_text())
