"""Folders of Marian's, and what is wrong with them. The parity tests compare translations."""

import re
import shutil
from typing import Any

import numpy as np
import pytest
import torch

from helpers import foreign_folders
from helpers.checkpoint_formats import FORMATS
from translane_export.sources.marian import generation_settings


@pytest.fixture
def marian(tmp_path):
    return FORMATS["Marian .npz"](tmp_path / "model")


def test_the_decoder_starts_with_zeros_and_unknown_words_are_not_generated(marian):
    checkpoint = marian.read()
    start = marian.pad
    assert checkpoint.config.start_id == checkpoint.config.pad_id == start
    assert (checkpoint.state_dict["decoder.embedding.tokens.weight"][start] == 0).all()
    assert checkpoint.config.suppressed_ids == (1, start)
    assert checkpoint.state_dict["output_projection.bias"].half().isfinite().all()
    assert (checkpoint.config.eos_id, checkpoint.config.unk_id) == (0, 1)


def test_unknown_words_may_be_generated_if_the_folder_says_so(marian):
    path = marian.folder / "decoder.yml"
    path.write_text(path.read_text() + "allow-unk: true\n")
    assert marian.read().config.suppressed_ids == (marian.pad,)


def test_how_translations_are_generated(marian):
    assert marian.read().metadata == {"generation": {"num_beams": 6, "length_penalty": 0.6}}
    assert str(marian.read().settings["decoding_defaults"]) == "beam_size=6,length_penalty=0.6"
    assert generation_settings({}) == {}
    assert generation_settings({"beam-size": "many", "normalize": True}) == {}
    assert generation_settings({"beam-size": 4, "normalize": True}) == {"num_beams": 4, "length_penalty": 1.0}
    assert generation_settings({"beam-size": 4}) == {"num_beams": 4, "length_penalty": 0.0}


@pytest.mark.parametrize("written", ["0.6", "6e-1", "6E-01", "0.06e1"])
def test_numbers_of_settings(marian, written):
    path = marian.folder / "decoder.yml"
    path.write_text(path.read_text().replace("normalize: 0.6", f"normalize: {written}"))
    assert marian.read().metadata["generation"]["length_penalty"] == 0.6


def test_languages_that_have_tokens(marian):
    path = marian.folder / "opus.vocab.yml"
    text = path.read_text().replace('"<unk>": 1\n', '"<unk>": 1\n">>fra<<": 5\n')
    lines = [line for line in text.split("\n") if not line.endswith(": 5") or "fra" in line]
    path.write_text("\n".join(lines))
    languages = marian.read().languages
    assert languages.target == ("fra",)
    assert languages.templates.target["fra"].source_prefix == (5,)


def test_sentencepiece_models_as_vocabularies(marian):
    for path in [*marian.folder.glob("*.spm"), *marian.folder.glob("*.yml")]:
        path.unlink()
    special: dict[str, Any] = {"eos_id": 0, "unk_id": 1, "bos_id": -1, "pad_id": -1}
    foreign_folders.train(marian.folder / "vocab.deen.spm", "unigram", 700, **special)
    rows = np.random.default_rng(0).standard_normal((800, 32)).astype(np.float32)
    marian.weights |= {"Wemb": torch.from_numpy(rows), "decoder_ff_logit_out_b": torch.zeros(1, 800)}
    marian.save()
    checkpoint = marian.read()
    assert checkpoint.config.start_id == 800
    tokenizer = checkpoint.tokenizer.load(checkpoint.config, checkpoint.languages)
    ids = tokenizer.encode(["a cat"])[0]
    assert ids[-1] == 0
    assert tokenizer.decode([tokenizer.encode_target(["a cat"])[0]]) == ["a cat"]


def test_files_that_are_missing_or_of_others(marian):
    def refused(message):
        assert re.search(message, marian.refused())

    table = marian.weights["Wemb"]
    marian.weights["Wemb"] = (table * 10).char()
    refused(r"model.npz: its weights are int8, and only those of float32 and float16 are read")
    marian.weights["Wemb"] = table[:20]
    refused(r"its source vocabulary has \d+ pieces, and the model embeds 20")
    marian.weights["Wemb"] = table
    marian.weights["decoder_ff_logit_out_Wt"] = torch.cat([table, table])
    refused(r"decoder_ff_logit_out_Wt has [\d,]+ pieces, and the embeddings have \d+")
    del marian.weights["decoder_ff_logit_out_Wt"]
    for name in ("decoder_ff_logit_out_Wt", "decoder_ff_logit_out_W", "encoder_Wemb", "decoder_Wemb"):
        marian.weights[name] = torch.tensor(1.0)
        refused(rf"model.npz: the tensor {name} is \[\], and it should be a table")
        del marian.weights[name]
    decoder = (marian.folder / "decoder.yml").read_text()
    (marian.folder / "decoder.yml").write_text(decoder.replace("  - model.npz\n", "  - model.npz\n  - other.npz\n"))
    refused(r"decoder.yml: it names 2 models, and ensembles are not supported")
    (marian.folder / "decoder.yml").unlink()
    shutil.copyfile(marian.made.path, marian.folder / "other.npz")
    refused(r"it has 2 models, .*; leave the one to export")
    (marian.folder / "other.npz").unlink()
    vocabulary = (marian.folder / "opus.vocab.yml").read_text()
    (marian.folder / "opus.vocab.yml").write_text(vocabulary.replace('"<unk>": 1\n', ""))
    refused(r"opus.vocab.yml: it has no <unk>")
    (marian.folder / "opus.vocab.yml").unlink()
    refused(r"it has no vocabulary, such as vocab.yml or vocab.spm")
    marian.write = lambda _subject: np.savez(marian.made.path, Wemb=table.numpy())
    refused(r"model.npz: it is no model of Marian's, which has its settings in special:model.yml")
