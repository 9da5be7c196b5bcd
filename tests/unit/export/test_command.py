"""translane export: every failure is one sentence, an exit code and nothing left behind."""

import dataclasses
import re
import shutil
import signal
import time
import weakref
from unittest.mock import Mock

import onnx_ir as ir
import pytest
import torch
from msgspec.structs import replace
from safetensors.torch import load_file, save_file

from helpers.commands import export as main
from helpers.firefox_list import FirefoxList
from helpers.refusals import refusal
from helpers.tiny_bundle import TINY
from translane_export import bundle_writer
from translane_export.bundle_writer import export_checkpoint
from translane_export.combinations import complete
from translane_export.core.checkpoint import load_checkpoint
from translane_export.core.errors import ExportError
from translane_export.core.settings import ENV_PREFIX, ExportSettings, read_defaults
from translane_export.graphs import writer
from translane_export.graphs.writer import share_weights
from translane_server.bundle.bundle import load_bundle
from translane_server.bundle.manifest import DecodingDefaults, SearchDefaults
from translane_server.core.errors import SettingsError
from translane_server.models.cache import ModelCache, model_cache
from translane_server.settings.loader import load_settings


@pytest.fixture
def fails(tmp_path, capsys):
    """Run the command; return its one sentence once it is seen to leave nothing behind."""

    def run(*arguments, code=1):
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        assert main([*map(str, arguments)]) == code
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
        last = capsys.readouterr().err.splitlines()[-1]
        assert last.startswith("translane export: ")
        return last.removeprefix("translane export: ")

    return run


@pytest.mark.parametrize(("source", "warned"), [("und", True), ("de", False)])
def test_it_warns_of_a_model_of_unknown_languages(monkeypatch, tmp_path, capsys, source, warned):
    manifest = replace(load_bundle(TINY).manifest, source_languages=(source,))
    monkeypatch.setattr("translane_export.bundle_writer.export_precisions", lambda _settings, log: [manifest])
    assert main(["anywhere", "-o", str(tmp_path / "bundle")]) == 0
    assert ("warning: the checkpoint does not say which languages" in capsys.readouterr().err) is warned


@pytest.mark.parametrize(("asked", "said"), [({}, True), ({"decoding_defaults": "beam_size=2"}, False)])
def test_it_names_what_of_the_checkpoints_search_is_left_out(checkpoint, tmp_path, monkeypatch, asked, said):
    search = {"decoding_defaults": SearchDefaults(beam_size=4)}
    found = dataclasses.replace(load_checkpoint(checkpoint), settings=search, left_out_search=("top_h 0.4",))
    monkeypatch.setattr(bundle_writer, "plan_pruning", Mock(side_effect=ExportError("far enough")))
    settings = ExportSettings(checkpoint=checkpoint, output=tmp_path / "bundle", **asked)
    lines: list[str] = []
    with pytest.raises(ExportError, match="far enough"):
        export_checkpoint(settings, lines.append, reader=Mock(read=lambda _folder: found))
    assert any(line.endswith("which the server's has not: top_h 0.4") for line in lines) is said


@pytest.mark.parametrize(
    ("more", "layer"),
    [({}, 1), ({"alignment_layer": 0}, 0), ({"samples": "texts"}, None), ({"format": "torchscript"}, None)],
)
def test_a_bundle_keeps_its_alignment_layer_unless_samples_choose(checkpoint, more, layer):
    found = dataclasses.replace(load_checkpoint(checkpoint), settings={"alignment_layer": 1})
    assert complete(ExportSettings(checkpoint=checkpoint, output=checkpoint, **more), found).alignment_layer == layer


def test_a_model_of_firefox_stays_in_the_cache_while_it_is_exported(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = ModelCache(model_cache(), 1)
    folders = []

    def export(settings, log):
        cache.trim()  # as a server does meanwhile
        folders.append(settings.checkpoint)
        assert {path.name for path in settings.checkpoint.iterdir()} == {"model.bin", "vocab.spm"}
        return [load_bundle(TINY).manifest]

    monkeypatch.setattr("translane_export.bundle_writer.export_precisions", export)
    with FirefoxList() as models:
        models.add("model", "model.bin", b"the weights")
        models.add("vocab", "vocab.spm", b"pieces")
        assert main(["firefox:de-en", "-o", str(tmp_path / "bundle"), "--firefox-models", models.url]) == 0
    cache.trim()
    assert [folder.exists() for folder in folders] == [False]


@pytest.mark.slow
def test_exports_and_reports(checkpoint, tmp_path, capsys, monkeypatch):
    output, again, samples = tmp_path / "bundle", tmp_path / "again", tmp_path / "samples.txt"
    flags = ["--name", "tiny", "--model-version", "7", "--license", "CC-BY-4.0", "--attribution", "Tatoeba"]
    samples.write_text("好。\n\n")
    flags += ["--decoding-defaults", "beam_size=4,length_penalty=0.6", "--samples", str(samples)]
    assert main([str(checkpoint), "-o", str(output), "--max-source-tokens", "9", *flags]) == 0
    manifest = load_bundle(output).manifest
    assert (manifest.name, manifest.version, manifest.license) == ("tiny", "7", "CC-BY-4.0")
    assert (manifest.source_languages, manifest.target_languages) == (("zh",), ("en",))
    assert (manifest.provenance.checkpoint, manifest.provenance.attribution) == ("best", "Tatoeba")
    assert manifest.provenance.training["data_licence"] == "CC0-1.0"
    assert manifest.decoding_defaults == DecodingDefaults(max_length=16, beam_size=4, length_penalty=0.6)
    assert (manifest.limits.source_tokens, manifest.limits.target_tokens) == (9, 16)
    assert manifest.alignment is not None
    assert manifest.parity is not None
    assert (manifest.alignment.layer, manifest.parity.attention_tolerance) == (0, 1e-4)
    assert set(manifest.files) == {path.name for path in output.iterdir()} - {"manifest.json"}
    captured = capsys.readouterr()
    assert re.search(r"parity: \d+ sentences, [\d,]+ tokens, 0 differ; largest logit difference", captured.out)
    assert "capturing the decoder step" in captured.err
    assert "requests that set nothing are searched with beam_size=4,length_penalty=0.6" in captured.err
    card = (output / "README.md").read_text(encoding="utf-8")
    for said in ("Attribution: Tatoeba", "Licence: CC-BY-4.0", "beam_size=4, length_penalty=0.6"):
        assert said in card

    samples.write_text("")
    (tmp_path / "card.md").write_text("# Mine\n")
    monkeypatch.setenv("TRANSLANE_EXPORT_OUTPUT", str(again))
    monkeypatch.setenv("TRANSLANE_EXPORT_MODEL_CARD", str(tmp_path / "card.md"))
    flags = ["--decoding-defaults", "none", "--samples", str(samples)]
    assert main([str(output), *flags, "--default-max-length", "5"]) == 0
    changed = load_bundle(again).manifest
    assert changed.decoding_defaults == DecodingDefaults(max_length=5)
    assert (again / "README.md").read_text() == "# Mine\n"
    assert changed.parity is not None
    assert changed.parity.sentences == manifest.parity.sentences - 1
    assert "searched with" not in capsys.readouterr().err.rpartition("reading")[2]


def test_the_checkpoint_and_the_output_are_required(checkpoint, tmp_path, fails):
    assert "--output is required" in fails(checkpoint, code=2)
    assert "CHECKPOINT is required" in fails("-o", tmp_path / "bundle", code=2)


NO_PAIRS = {"latin": b"\xff\tno text\n", "words": b"no tab here\n", "empty": b""}
PRECISIONS = "it should be one of fp32, fp16, bf16, int8, or different ones"


@pytest.mark.parametrize(
    ("flags", "code", "sentence"),
    [
        (["--precison", "fp16"], 2, "unknown argument --precison"),
        *((["--precision", text], 2, f"--precision: {PRECISIONS}") for text in ("fp8", "fp16,", "int8,int8", "")),
        (["--name", "a name"], 2, "--name"),
        (["--target-language", "en_GB"], 2, "--target-language: it should be a BCP-47 tag such as zh or pt-BR, not "),
        (["--format", "torchscript", "--precision", "int8"], 1, "int8 is a precision of ONNX bundles"),
        (["--precision", "fp16", "--weight-storage", "float32"], 1, "leave --weight-storage out"),
        (["--format", "torchscript", "--weight-storage", "float16"], 1, "leave --weight-storage out"),
        (["--precision", "bf16", "--weight-storage", "float16"], 1, "stores its weights as bfloat16; leave"),
        (["--precision", "bf16", "--format", "torchscript"], 1, "bf16 is a precision of ONNX bundles"),
        (["--shortlist", "none.vmap", "--precision", "fp16"], 1, "--shortlist is for fp32 and int8 bundles, and fp16"),
        (["--shortlist", "none.vmap", "--format", "torchscript"], 1, "and TorchScript files have none"),
        (["--decoding-defaults", "use_shortlist=true"], 1, "--decoding-defaults use_shortlist needs a --shortlist"),
        (["--quality-data", "none.tsv"], 1, "none.tsv: the file is missing"),
        (["--quality-data", "latin.txt", "--format", "torchscript"], 1, "the server, which reads no TorchScript files"),
        *((["--precision", "int8", "--test", f"{name}.txt"], 1, f"--test {name}.txt") for name in NO_PAIRS),
        (["--precision", "int8", "--test", "none.tsv"], 1, "none.tsv: the file is missing"),
        (["--precision", "fp32,fp16", "--test", "x.tsv"], 1, "--test is for precision int8, whose translations it"),
        (["--max-target-tokens", "99"], 1, "--max-target-tokens is 99, and the model has 16 positions"),
        (["--model-card", "none.md"], 1, "model card"),
        (["--alignment-layer", "1"], 1, "--alignment-layer is 1, and the model's decoder layers are 0 to 0"),
        (["--format", "torchscript", "--alignment-layer", "0"], 1, "leave --alignment-layer out"),
        (["--samples", "none.txt"], 1, "none.txt: the file is missing"),
        (["--samples", "latin.txt"], 1, "latin.txt: it is not UTF-8 text"),
    ],
)
def test_wrong_flags_are_refused(checkpoint, tmp_path, fails, monkeypatch, flags, code, sentence):
    monkeypatch.chdir(tmp_path)
    for name, content in NO_PAIRS.items():
        (tmp_path / f"{name}.txt").write_bytes(content)
    assert sentence in fails(checkpoint, "-o", tmp_path / "bundle", *flags, code=code)


def test_what_is_no_checkpoint(tmp_path, fails):
    output = tmp_path / "bundle"
    assert "there is no such folder" in fails(tmp_path / "none", "-o", output)
    (tmp_path / "model.pt").write_bytes(b"")
    assert "model.pt: it is a file; name the folder that it is in" in fails(tmp_path / "model.pt", "-o", output)
    assert "File name too long" in fails(tmp_path / ("a" * 300), "-o", output)
    (tmp_path / "empty").mkdir()
    assert "no known format (known: Translane checkpoint, model bundle, " in fails(tmp_path / "empty", "-o", output)
    for name in ("fp16", "int8"):
        (tmp_path / "several" / name).mkdir(parents=True)
        (tmp_path / "several" / name / "manifest.json").write_text("{}")
    assert fails(tmp_path / "several", "-o", output) == (
        f"checkpoint {tmp_path / 'several'}: it is a folder of model bundles, one for each precision; name one of them:"
        " fp16 or int8"
    )


def test_weights_that_are_no_numbers_of_the_precision(checkpoint, tmp_path, fails):
    name = "encoder.layers.0.feed_forward.up_proj.weight"
    for change, precision, sentence in (
        (lambda weight: weight.where(weight < weight.max(), torch.nan), "fp32", "that are not finite"),
        (lambda weight: weight * 1e7, "fp16", "too large for float16"),
    ):
        folder = shutil.copytree(checkpoint, tmp_path / precision)
        weights = load_file(folder / "model.safetensors")
        save_file({**weights, name: change(weights[name])}, folder / "model.safetensors")
        said = fails(folder, "-o", tmp_path / "bundle", "--precision", precision)
        assert f"model.safetensors: the tensor {name} holds numbers {sentence}" in said


def send(number):
    signal.raise_signal(number)


def send_in_a_callback(number):
    """Python drops the exception of a callback of weakref."""
    lost = type("Lost", (), {})()
    _watch = weakref.ref(lost, lambda _: send(number))
    del lost
    time.sleep(60)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("number", "how", "code", "said"),
    [
        (signal.SIGTERM, send, 128 + signal.SIGTERM, "ended by SIGTERM"),
        (signal.SIGTERM, send_in_a_callback, 128 + signal.SIGTERM, "ended by SIGTERM"),
        (signal.SIGINT, send, 130, "interrupted"),
    ],
)
def test_a_signal_leaves_nothing(checkpoint, tmp_path, monkeypatch, fails, number, how, code, said):
    previous = [(each, signal.getsignal(each)) for each in (signal.SIGTERM, signal.SIGALRM)]
    monkeypatch.setattr(bundle_writer, "_compare", lambda *_: how(number))
    rmtree = shutil.rmtree

    def sent_again(*arguments, **options):
        signal.raise_signal(number)  # of a group, a process gets the command's and its own
        rmtree(*arguments, **options)

    monkeypatch.setattr(shutil, "rmtree", sent_again)
    try:
        assert fails(checkpoint, "-o", tmp_path / "out" / "bundle", code=code) == f"{said}; nothing is written"
    finally:
        for each in previous:
            signal.signal(*each)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_an_export_that_differs_from_pytorch_leaves_the_earlier_bundle(checkpoint, bundle, fails, monkeypatch):
    def damage(models, path, storage):
        share_weights(models, path, storage)
        content = bytearray(path.read_bytes())
        content[3] ^= 0x40  # the exponent of a weight
        path.write_bytes(content)

    monkeypatch.setattr(writer, "share_weights", damage)
    sentence = fails(checkpoint, "-o", bundle, "--force")
    assert re.fullmatch(
        r"the exported model differs from PyTorch's: logits by up to \S+ \(tolerance 0.0001\), \d+ of \d+ tokens,"
        r" attention weights by up to \S+ \(tolerance 0.0001\)",
        sentence,
    )


@pytest.mark.slow
def test_a_graph_that_does_not_load_leaves_nothing(checkpoint, tmp_path, fails, monkeypatch):
    monkeypatch.setattr(ir, "save", lambda model, path: path.write_bytes(b"no graph"))
    assert "the exported model does not load" in fails(checkpoint, "-o", tmp_path / "bundle")


@pytest.mark.parametrize(
    ("text", "defaults"),
    [
        ("beam_size=4", {"beam_size": 4}),
        (" beam_size = 4 , length_penalty=-0.5", {"beam_size": 4, "length_penalty": -0.5}),
        (
            "early_stopping=true,repetition_penalty=1.1,no_repeat_ngram_size=3,min_length=1",
            {"early_stopping": True, "repetition_penalty": 1.1, "no_repeat_ngram_size": 3, "min_length": 1},
        ),
        ("none", {}),
        ("", {}),
    ],
)
def test_decoding_defaults_are_read_from_text(text, defaults):
    found = read_defaults(text)
    assert found == SearchDefaults(**defaults)
    assert read_defaults(str(found)) == found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("beam_size", "'beam_size' has no value: write NAME=VALUE, such as beam_size=4"),
        ("beams=4", "'beams' is none of beam_size, length_penalty, early_stopping, "),
        ("beamsize=4", "did you mean beam_size?"),
        ("beam_size=4,beam_size=5", "beam_size occurs twice"),
        ("max_length=9", "max_length has a setting of its own, --default-max-length"),
        ("beam_size=0", "beam_size: expected int >= 1, not 'beam_size=0'"),
        ("beam_size=four", "beam_size: expected int"),
        ("beam_size=null", "beam_size: expected int"),
        ("length_penalty=nan", "length_penalty: expected float"),
        ("early_stopping=never", "early_stopping: expected bool"),
        ("\x1b[2J=1", r"'\x1b[2J' is none of"),
    ],
)
def test_wrong_decoding_defaults_are_one_sentence(text, problem):
    message = refusal(SettingsError, load, ["--decoding-defaults", text])
    assert message.startswith("--decoding-defaults: ")
    assert problem in message


def load(flags):
    return load_settings(
        ExportSettings, ["model", "-o", "out", *flags], {}, prog="translane export", env_prefix=ENV_PREFIX
    )


def test_decoding_defaults_may_come_from_a_file(tmp_path):
    expected, file = SearchDefaults(beam_size=4, length_penalty=0.6), tmp_path / "settings.toml"
    for value in ('"beam_size=4,length_penalty=0.6"', "{ beam_size = 4, length_penalty = 0.6 }"):
        file.write_text(f"decoding_defaults = {value}\n")
        assert load(["--config", str(file)]).decoding_defaults == expected
    assert load(["--decoding-defaults", "none"]).decoding_defaults == SearchDefaults()
