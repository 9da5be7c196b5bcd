"""Folders of Marian's, and what is wrong with them. The parity tests compare translations."""

from __future__ import annotations

import dataclasses
import shutil
from typing import Any

import numpy as np
import pytest

from helpers.marian_files import marian_folder
from translane_export.errors import ExportError
from translane_export.sources.marian_npz import generation_settings
from translane_export.sources.readers import find_reader, read_checkpoint


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return marian_folder(tmp_path_factory.mktemp("marian") / "model")


@pytest.fixture
def made(kept, tmp_path):
    """A folder to change."""
    shutil.copytree(kept.folder, tmp_path / "model")
    return dataclasses.replace(kept, folder=tmp_path / "model", arrays=dict(kept.arrays))


def read(made):
    return read_checkpoint(find_reader(made.folder), made.folder)


def test_the_decoder_starts_with_zeros_and_unknown_words_are_not_generated(kept):
    checkpoint = read(kept)
    start = len(kept.target)
    assert checkpoint.config.start_id == checkpoint.config.pad_id == start
    assert (checkpoint.state_dict["decoder.embedding.tokens.weight"][start] == 0).all()
    assert checkpoint.config.suppressed_ids == (1, start)
    assert (checkpoint.config.eos_id, checkpoint.config.unk_id) == (0, 1)


def test_unknown_words_may_be_generated_if_the_folder_says_so(made):
    path = made.folder / "decoder.yml"
    path.write_text(path.read_text() + "allow-unk: true\n")
    assert read(made).config.suppressed_ids == (len(made.target),)


def test_how_translations_are_generated(kept):
    assert read(kept).metadata == {"generation": {"num_beams": 6, "length_penalty": 0.6}}
    assert str(read(kept).settings["decoding_defaults"]) == "beam_size=6,length_penalty=0.6"
    assert generation_settings({}) == {}
    assert generation_settings({"beam-size": "many", "normalize": True}) == {}
    assert generation_settings({"beam-size": 4, "normalize": True}) == {"num_beams": 4, "length_penalty": 1.0}
    assert generation_settings({"beam-size": 4}) == {"num_beams": 4, "length_penalty": 0.0}


def test_languages_that_have_tokens(made):
    path = made.folder / "opus.vocab.yml"
    text = path.read_text().replace('"<unk>": 1\n', '"<unk>": 1\n">>fra<<": 5\n')
    lines = [line for line in text.split("\n") if not line.endswith(": 5") or "fra" in line]
    path.write_text("\n".join(lines))
    languages = read(made).languages
    assert languages.target == ("fra",)
    assert languages.templates.target["fra"].source_prefix == (5,)


def test_sentencepiece_models_as_vocabularies(tmp_path):
    from helpers import foreign_folders

    made = marian_folder(tmp_path / "model")
    for path in [*made.folder.glob("*.spm"), *made.folder.glob("*.yml")]:
        path.unlink()
    special: dict[str, Any] = {"eos_id": 0, "unk_id": 1, "bos_id": -1, "pad_id": -1}
    model = foreign_folders.train(made.folder / "vocab.deen.spm", "unigram", 700, **special)
    assert model.is_file()
    rows = np.random.default_rng(0).standard_normal((800, made.model.width)).astype(np.float32)
    bias = np.zeros((1, 800), np.float32)
    made.arrays = {**made.arrays, "Wemb": rows, "decoder_ff_logit_out_b": bias}
    made.save()
    checkpoint = read(made)
    assert checkpoint.config.start_id == 800
    tokenizer = checkpoint.tokenizer.load(checkpoint.config, checkpoint.languages)
    ids = tokenizer.encode(["a cat"])[0]
    assert ids[-1] == 0
    assert tokenizer.decode([tokenizer.encode_target(["a cat"])[0]]) == ["a cat"]


def test_files_that_are_missing_or_of_others(made):
    def refused(message):
        with pytest.raises(ExportError, match=message):
            read(made)

    arrays = dict(made.arrays)
    made.arrays = {name: array for name, array in arrays.items() if ":" not in name}
    made.save()
    refused(r"model.npz: it is no model of Marian's, which has its settings in special:model.yml")
    made.arrays = {**arrays, "Wemb": (arrays["Wemb"] * 10).astype(np.int8)}
    made.save()
    refused(r"model.npz: its weights are int8, and only those of float32 and float16 are read")
    made.arrays = {**arrays, "Wemb": arrays["Wemb"][:20]}
    made.save()
    refused(r"its source vocabulary has \d+ pieces, and the model embeds 20")
    made.arrays = arrays
    made.save()
    decoder = (made.folder / "decoder.yml").read_text()
    (made.folder / "decoder.yml").write_text(decoder.replace("  - model.npz\n", "  - model.npz\n  - other.npz\n"))
    refused(r"decoder.yml: it names 2 models, and ensembles are not supported")
    (made.folder / "decoder.yml").unlink()
    shutil.copyfile(made.path, made.folder / "other.npz")
    refused(r"it has 2 .npz files; leave the one to export")
    (made.folder / "other.npz").unlink()
    vocabulary = (made.folder / "opus.vocab.yml").read_text()
    (made.folder / "opus.vocab.yml").write_text(vocabulary.replace('"<unk>": 1\n', ""))
    refused(r"opus.vocab.yml: it has no <unk>")
    (made.folder / "opus.vocab.yml").unlink()
    refused(r"it has no vocabulary, such as vocab.yml or vocab.spm")
    (made.folder / "opus.vocab.yml").write_text(vocabulary)
    for path in made.folder.glob("*.spm"):
        path.unlink()
    refused(r"it has no SentencePiece model, a file that ends in .model or .spm")
