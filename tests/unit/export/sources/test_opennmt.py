from __future__ import annotations

import argparse
import json
import shutil
from typing import Any

import pytest
import torch
from torch.nn import functional

from helpers.pickled_checkpoints import Made, opennmt_checkpoint
from translane_export.errors import ExportError
from translane_export.model import Transformer
from translane_export.sources.opennmt import OpenNmtReader
from translane_server.bundle.manifest import SentencePieceTokenizerEntry

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


def test_long_tables_of_positions_are_cut(made):
    for side in ("encoder", "decoder"):
        made.content["model"][f"{side}.embeddings.make_embedding.pe.pe"] = torch.zeros(5000, 1, 32)
    made.save()
    assert OpenNmtReader().read(made.folder).config.max_positions == 1024


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
