from __future__ import annotations

import argparse
import json
import shutil
from typing import Any

import pytest
import torch
from torch.nn import functional

from helpers.driver import BundleDecoder
from helpers.pickled_checkpoints import TARGET_LINES, Made, greedy, opennmt_checkpoint, random_sources
from translane_export.bundle_writer import export_checkpoint
from translane_export.errors import ExportError
from translane_export.model import Transformer
from translane_export.settings import ExportSettings
from translane_export.sources.opennmt import OpenNmtReader
from translane_server.bundle.bundle import load_bundle
from translane_server.bundle.manifest import SentencePieceTokenizerEntry
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Sentence

SOURCES = torch.tensor([[7, 9, 10, 4, 12], [5, 6, 8, 1, 1]])
LENGTHS = torch.tensor([5, 3])
TARGETS = torch.tensor([[2, 9, 11, 5], [2, 7, 6, 7]])


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("opennmt")
    return {version: opennmt_checkpoint(folder / str(version), version=version) for version in (2, 3)}


@pytest.fixture
def made(kept, tmp_path):
    """A checkpoint of version 3, to change."""
    shutil.copytree(kept[3].folder, tmp_path / "copy")
    content = {**kept[3].content, "model": dict(kept[3].content["model"]), "vocab": dict(kept[3].content["vocab"])}
    content["opt"] = argparse.Namespace(**vars(kept[3].content["opt"]))
    return Made(tmp_path / "copy", content, kept[3].model, kept[3].source_symbols, kept[3].target_symbols)


def assert_same_model(made):
    checkpoint = OpenNmtReader().read(made.folder)
    model = Transformer(checkpoint.config).eval()
    model.load_state_dict(checkpoint.state_dict)
    with torch.inference_mode():
        expected = made.model(SOURCES, LENGTHS, TARGETS)
        torch.testing.assert_close(model(SOURCES, LENGTHS, TARGETS), expected, rtol=0, atol=1e-5)


def refused(made, message):
    """Save a checkpoint, whose reader has this to say of it."""
    made.save()
    with pytest.raises(ExportError, match=message):
        OpenNmtReader().read(made.folder)


@pytest.mark.parametrize("version", [2, 3])
def test_the_model_computes_what_it_did(kept, version):
    assert OpenNmtReader().recognises(kept[version].folder)
    assert_same_model(kept[version])


def test_attention_without_biases(tmp_path):
    """So it is in version 3 unless asked for."""
    assert_same_model(opennmt_checkpoint(tmp_path / "made", biases=False))


@pytest.mark.parametrize(("name", "function"), [("silu", functional.silu), ("gated-gelu", functional.gelu)])
def test_gated_feed_forward(made, name, function):
    """Compared with the layer's formula, on the first layer of the encoder."""
    generator = torch.Generator().manual_seed(0)
    for tensor_name, tensor in list(made.content["model"].items()):
        if ".w_1." in tensor_name:
            third = torch.randn(tensor.shape, generator=generator) * 0.2
            made.content["model"][tensor_name.replace("w_1", "w_3")] = third
    made.content["opt"].pos_ffn_activation_fn = name
    made.save()
    checkpoint = OpenNmtReader().read(made.folder)
    model = Transformer(checkpoint.config).eval()
    model.load_state_dict(checkpoint.state_dict)

    def linear(part, x):
        module = f"encoder.transformer.0.feed_forward.{part}"
        return functional.linear(x, made.content["model"][f"{module}.weight"], made.content["model"][f"{module}.bias"])

    x = torch.randn(1, 3, checkpoint.config.d_model, generator=generator)
    expected = linear("w_2", function(linear("w_1", x)) * linear("w_3", x))
    layer: Any = model.encoder.layers[0]
    with torch.inference_mode():
        torch.testing.assert_close(layer.feed_forward(x), expected, rtol=0, atol=1e-5)


def test_another_start_token(made):
    made.content["vocab"]["decoder_start_token"] = "</s>"
    made.save()
    assert OpenNmtReader().read(made.folder).config.start_id == 3


def test_a_projection_that_is_the_embedding(made):
    made.content["model"]["decoder.embeddings.make_embedding.emb_luts.0.weight"] = made.content["generator"]["weight"]
    made.save()
    checkpoint = OpenNmtReader().read(made.folder)
    assert checkpoint.config.tie_embeddings == "two-way"


def test_long_tables_of_positions_are_cut(made):
    for side in ("encoder", "decoder"):
        made.content["model"][f"{side}.embeddings.make_embedding.pe.pe"] = torch.zeros(5000, 1, 32)
    made.save()
    assert OpenNmtReader().read(made.folder).config.max_positions == 1024


def test_vocabularies(kept):
    made = kept[3]
    tokenizer = OpenNmtReader().read(made.folder).tokenizer
    entry = tokenizer.entry
    assert isinstance(entry, SentencePieceTokenizerEntry)
    assert not entry.source_eos
    for name, symbols in ((entry.source_ids, made.source_symbols), (entry.target_ids, made.target_symbols)):
        assert name is not None
        assert json.loads(tokenizer.read(name)) == {symbol: number for number, symbol in enumerate(symbols)}
    assert tokenizer.read(entry.target) == (made.folder / "target.spm").read_bytes()


def test_source_words_that_have_the_ids_of_the_targets_start_and_end(kept):
    """Before version 3 sources had neither, and these ids were words; they are others now, with the same vectors."""
    made = kept[2]
    checkpoint = OpenNmtReader().read(made.folder)
    tokenizer, size = checkpoint.tokenizer, len(made.source_symbols)
    entry = tokenizer.entry
    assert isinstance(entry, SentencePieceTokenizerEntry)
    assert entry.source_ids is not None
    ids = json.loads(tokenizer.read(entry.source_ids))
    assert list(ids) == made.source_symbols
    assert list(ids.values()) == [0, 1, size, size + 1, *range(4, size)]
    vectors = checkpoint.state_dict["encoder.embedding.tokens.weight"][list(ids.values())]
    assert torch.equal(vectors, made.model.source.weight)


def test_what_is_recognised(kept, tmp_path):
    folder = tmp_path / "folder"
    shutil.copytree(kept[3].folder, folder)
    (folder / "torchscript.json").write_text("{}")
    assert not OpenNmtReader().recognises(folder)
    assert not OpenNmtReader().recognises(tmp_path)


WRONG_OPTIONS = {
    "copy_attn": (True, "copy_attn is True, which is not supported"),
    "max_relative_positions": (20, "max_relative_positions is 20, which is not supported"),
    "num_kv": (2, "num_kv is 2, which is not supported"),
    "parallel_residual": (True, "parallel_residual is True, which is not supported"),
    "encoder_type": ("brnn", "encoder_type is 'brnn', and only transformer is supported"),
    "model_task": ("lm", "model_task is 'lm', and only seq2seq is supported"),
    "self_attn_type": (
        "average",
        "self_attn_type is 'average', and only scaled-dot and scaled-dot-flash are supported",
    ),
    "layer_norm": ("rms", "layer_norm is 'rms', and only standard is supported"),
    "generator_function": ("sparsemax", "generator_function is 'sparsemax', and only softmax is supported"),
    "position_encoding": (False, "position_encoding is false, and only models that have it are supported"),
    "pos_ffn_activation_fn": ("gelu_new", "pos_ffn_activation_fn is 'gelu_new', and only relu, gelu, silu, gated-gelu"),
    "enc_layers": (None, "the setting enc_layers is missing"),
    "norm_eps": ("small", "norm_eps is 'small', not a number"),
}


@pytest.mark.parametrize("name", WRONG_OPTIONS)
def test_options_that_are_not_supported(made, name):
    value, message = WRONG_OPTIONS[name]
    setattr(made.content["opt"], name, value)
    refused(made, message)


@pytest.mark.parametrize(
    "name",
    [
        "generator.weight",
        "encoder.embeddings.make_embedding.pe.pe",
        "decoder.embeddings.make_embedding.emb_luts.0.weight",
        "encoder.transformer.0.feed_forward.w_1.weight",
        "decoder.transformer_layers.2.layer_norm_2.bias",
    ],
)
def test_a_tensor_that_is_missing(made, name):
    part, key = ("generator", "weight") if name.startswith("generator") else ("model", name)
    made.content[part] = {other: tensor for other, tensor in made.content[part].items() if other != key}
    refused(made, f"the tensor {name} is missing")


def test_a_tensor_without_a_place(made):
    made.content["model"]["encoder.embeddings.make_embedding.emb_luts.1.weight"] = torch.zeros(3, 4)
    refused(made, r"emb_luts.1.weight has no place in the model that its settings describe")


def test_vocabularies_that_are_wrong(made):
    vocabularies = made.content["vocab"]
    for change, message in (
        ({"src": None}, "it has no list of tokens under vocab.src, where OpenNMT-py saves them"),
        ({"src": [*made.source_symbols, "more"]}, r"vocab.src has \d+ tokens, and the model embeds \d+"),
        (
            {"src": ["<blank>", "<unk>", *made.source_symbols[2:]]},
            "<blank> is not the same id in vocab.src and vocab.tgt",
        ),
        ({"tgt": [*made.target_symbols[:3], "x", *made.target_symbols[4:]]}, "vocab.tgt has no </s>"),
        ({"src_feats": [["a"]]}, "source features are not supported"),
    ):
        made.content["vocab"] = {**vocabularies, **change}
        refused(made, message)


def test_files_that_are_no_checkpoints(made):
    made.content["generator"] = None
    refused(made, "it is no OpenNMT-py checkpoint, whose tensors are under model and generator")
    made.content["opt"] = [1]
    refused(made, "it is no OpenNMT-py checkpoint, whose settings are under opt")
    shutil.copyfile(made.path, made.folder / "other.pt")
    refused(made, r"it has 2 .pt files; leave the one to export")


@pytest.fixture(scope="module")
def bundle(kept, tmp_path_factory):
    """Of version 2, whose source vocabulary is numbered anew."""
    folder = tmp_path_factory.mktemp("bundle") / "bundle"
    export_checkpoint(ExportSettings(checkpoint=kept[2].folder, output=folder, threads=1))
    return load_bundle(folder)


@pytest.mark.slow
def test_a_bundle_translates_as_the_model_did(kept, bundle):
    made = kept[2]
    batch = random_sources(100, range(4, len(made.source_symbols)))
    wanted = greedy(made.model, batch, start=2, end=3, steps=16)
    with BundleDecoder(bundle) as driver:
        found = driver.together([Sentence(source, DecodingOptions(max_length=16)) for source in batch])
    assert [list(best.token_ids) for best, *_ in found] == wanted
    assert len({tuple(tokens) for tokens in wanted}) > 20
    assert {len(tokens) < 16 for tokens in wanted} == {True, False}


def test_a_bundles_texts(kept, bundle):
    """Pieces are numbered as the vocabularies say, and sources have no end."""
    made = kept[2]
    driver = BundleDecoder(bundle)
    ids = json.loads(bundle.path(bundle.manifest.tokenizer.source_ids).read_text(encoding="utf-8"))
    text = "the cat sat"
    (encoded,) = driver.tokenizer.encode([text])
    assert [
        made.source_symbols[list(ids.values()).index(number)] for number in encoded
    ] == driver.tokenizer.source_pieces(encoded)
    assert "".join(driver.tokenizer.source_pieces(encoded)).replace("▁", " ").strip() == text
    known = [line for line in TARGET_LINES if 0 not in driver.tokenizer.encode_target([line])[0]]
    assert driver.tokenizer.decode(driver.tokenizer.encode_target(known)) == known
    assert known
