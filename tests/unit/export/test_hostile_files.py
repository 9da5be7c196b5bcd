"""Checkpoints and bundles with a file that is cut off, flipped, of other types, too large or nested without end."""

import hashlib
import json
import os
import shutil
from collections import Counter
from random import Random
from unittest.mock import Mock

import pytest
import torch

from helpers import hostile_files
from helpers.marian_files import marian_folder
from helpers.pickled_checkpoints import fairseq_checkpoint, opennmt_checkpoint
from helpers.refusals import refusal
from helpers.tiny_bundle import TINY
from translane_export import bundle_writer
from translane_export.bundle_writer import export_checkpoint
from translane_export.core.errors import ExportError
from translane_export.core.file_readers import read_text
from translane_export.core.settings import ExportSettings
from translane_export.core.torch_model import build_model
from translane_export.sources.readers import find_reader
from translane_export.sources.weight_files import read_weights
from translane_server.bundle.devices import choose_bundle
from translane_server.core.errors import StartupError
from translane_server.core.files import MOST_DESCRIPTION_BYTES
from translane_server.text.tokenizer import load_tokenizer

CASES = 60  # of each folder
LONGEST = 1200  # characters of a sentence, with its folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory, checkpoint):
    """A good folder of each kind."""
    made = tmp_path_factory.mktemp("good")
    fairseq_checkpoint(made / "fairseq", "FSMT")
    opennmt_checkpoint(made / "opennmt")
    marian_folder(made / "marian")
    shutil.copytree(checkpoint, made / "translane")
    shutil.copytree(TINY, made / "bundle")
    return made


def hostile_folder(folders, kind, number, work):
    pick = Random(number)
    folder = work / kind
    shutil.copytree(folders / kind, folder)
    read = [path for path in folder.iterdir() if path.name != "README.md"]
    path = pick.choice(sorted(read))
    content = hostile_files.mutant(pick, path.name, path.read_bytes())
    path.write_bytes(content)
    if kind == "bundle" and path.name != "manifest.json":  # who writes the files writes their digests
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["files"][path.name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_a_text_of_any_size_is_not_read(tmp_path):
    file = tmp_path / "samples.txt"
    file.touch()
    os.truncate(file, MOST_DESCRIPTION_BYTES + 1)
    assert refusal(ExportError, read_text, file).endswith(": it has 67,108,865 bytes, and at most 67,108,864 are read")


def check(error):
    assert str(error).isprintable()
    assert len(str(error)) < LONGEST


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["translane", "bundle", "fairseq", "opennmt", "marian"])
def test_the_exporter_refuses_in_a_sentence(folders, tmp_path, kind, monkeypatch):
    monkeypatch.setattr(bundle_writer, "_choose_alignment", Mock(side_effect=ExportError("as far as the graphs")))
    refused = 0
    for number in range(CASES):
        folder = hostile_folder(folders, kind, number, tmp_path / str(number))
        with pytest.raises(ExportError) as caught:
            export_checkpoint(ExportSettings(checkpoint=folder, output=tmp_path / "out", threads=1))
        check(caught.value)
        refused += "as far as the graphs" not in str(caught.value)
        shutil.rmtree(folder)
    assert refused > CASES / 3


@pytest.mark.filterwarnings("ignore")
def test_the_server_refuses_in_a_sentence(folders, tmp_path):
    refused = 0
    for number in range(3 * CASES):
        folder = hostile_folder(folders, "bundle", number, tmp_path / str(number))
        try:
            load_tokenizer(choose_bundle(folder, "cpu")[0])
        except StartupError as error:
            check(error)
            refused += 1
        shutil.rmtree(folder)
    assert refused > CASES / 2


NAMES = ("heads", "d_model", "encoder_layers", "ffn_size", "max_positions", "head_size")
BEYOND = r"config.json: (d_model|heads|.* less than or equal to)"


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        *(({name: size}, BEYOND) for name in NAMES for size in (10**9, 10**12)),
        # those of no weight, which take no memory
        (dict.fromkeys(["d_model", "ffn_size", "source_vocab_size"], 10**6), "not fit its configuration|model embeds"),
    ],
    ids=str,
)
def test_a_size_of_no_model(folders, tmp_path, sizes, sentence):
    folder = shutil.copytree(folders / "translane", tmp_path / "checkpoint")
    config = json.loads((folder / "config.json").read_text())
    config["model"] |= sizes
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ExportError, match=sentence):
        export_checkpoint(ExportSettings(checkpoint=folder, output=tmp_path / "out", threads=1))


def test_no_parameter_is_filled_with_random_numbers_before_its_weights_come(folders):
    """They would take as much memory as the weights."""
    checkpoint = find_reader(folders / "translane").read(folders / "translane")
    before = torch.get_rng_state()
    build_model(checkpoint)
    assert torch.equal(torch.get_rng_state(), before)


NAME = "pytorch_model.bin"


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_that_is_cut_off_anywhere(tmp_path, zipped):
    """The format before PyTorch 1.6, too, whose tensors follow the pickles with their lengths before them."""
    path = tmp_path / NAME
    torch.save({"a": torch.arange(6.0), "b": torch.ones(2, 3)}, path, _use_new_zipfile_serialization=zipped)
    whole = path.read_bytes()
    assert set(read_weights(tmp_path)) == {"a", "b"}
    reasons: Counter[str] = Counter()
    for size in range(1, len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(ExportError) as caught:
            read_weights(tmp_path)
        reasons[str(caught.value).removeprefix(f"{path}: ").partition(":")[0]] += 1
    # half a name in a pickle is another name
    reasons.pop("it holds more than tensors and plain values, which is not read", None)
    assert set(reasons) <= {"it is not a PyTorch file", "it is cut off", "it is cut off or damaged"}
    assert reasons.total() > 0.8 * len(whole)


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: not enough memory: you")],
)
def test_memory_that_is_not_enough(tmp_path, monkeypatch, error):
    path = tmp_path / NAME
    torch.save({"a": torch.ones(1)}, path)
    monkeypatch.setattr(torch, "load", Mock(side_effect=error))
    message = refusal(ExportError, read_weights, tmp_path)
    assert message == f"{path}: there is not enough memory to read it, or it is damaged"
