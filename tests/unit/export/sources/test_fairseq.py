from __future__ import annotations

import argparse
import json
import shutil

import pytest
import torch

from helpers.pickled_checkpoints import WIDTH, Made, fairseq_checkpoint, modules
from translane_export.errors import ExportError
from translane_export.model import Transformer
from translane_export.sources.fairseq import FairseqReader
from translane_server.bundle.manifest import SentencePieceTokenizerEntry

KINDS = ("FSMT", "M2M100", "Bart")  # norms after, norms before, learned positions and a norm on the embeddings
SOURCES = torch.tensor([[7, 9, 10, 4, 2], [5, 6, 2, 1, 1]])
LENGTHS = torch.tensor([5, 3])
TARGETS = torch.tensor([[2, 9, 11, 5], [2, 7, 6, 7]])


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fairseq")
    return {kind: fairseq_checkpoint(folder / kind, kind) for kind in KINDS}


@pytest.fixture
def made(kept, tmp_path):
    """A checkpoint of FSMT's model, to change; `change` takes what the args are to be."""
    return copy(kept["FSMT"], tmp_path)


def copy(kept: Made, folder):
    shutil.copytree(kept.folder, folder / "copy")
    content = {**kept.content, "model": dict(kept.content["model"])}
    content["args"] = argparse.Namespace(**vars(kept.content["args"]))
    return Made(folder / "copy", content, kept.model, kept.source_symbols, kept.target_symbols)


def expected_logits(made):
    with torch.inference_mode():
        return made.model(
            input_ids=SOURCES, attention_mask=(SOURCES != 1).long(), decoder_input_ids=TARGETS, use_cache=False
        ).logits


def read_logits(made):
    checkpoint = FairseqReader().read(made.folder)
    model = Transformer(checkpoint.config).eval()
    model.load_state_dict(checkpoint.state_dict)
    with torch.inference_mode():
        return model(SOURCES, LENGTHS, TARGETS)


def assert_same_model(made):
    torch.testing.assert_close(read_logits(made), expected_logits(made), rtol=0, atol=1e-5)


def refused(made, message):
    """Save a checkpoint, whose reader has this to say of it."""
    made.save()
    with pytest.raises(ExportError, match=message):
        FairseqReader().read(made.folder)


def test_sinusoids_reach_to_the_last_position(kept):
    made = kept["M2M100"]
    long = torch.randint(4, len(made.source_symbols), (1, 48), generator=torch.Generator().manual_seed(0))
    checkpoint = FairseqReader().read(made.folder)
    assert checkpoint.config.max_positions == 48
    model = Transformer(checkpoint.config).eval()
    model.load_state_dict(checkpoint.state_dict)
    with torch.inference_mode():
        found = model(long, torch.tensor([48]), long)
        expected = made.model(input_ids=long, decoder_input_ids=long, use_cache=False).logits
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_how_it_decodes(kept):
    config = FairseqReader().read(kept["FSMT"].folder).config
    assert (config.bos_id, config.pad_id, config.eos_id, config.unk_id) == (0, 1, 2, 3)
    assert config.start_id == config.eos_id
    assert config.suppressed_ids == (1,)


def test_a_joint_vocabulary_has_one_file_of_each_kind(kept):
    entry = FairseqReader().read(kept["M2M100"].folder).tokenizer.entry
    assert isinstance(entry, SentencePieceTokenizerEntry)
    assert (entry.target, entry.target_ids) == (entry.source, entry.source_ids)


def test_settings_of_newer_releases(made):
    """These have them under cfg, in groups, and leave args empty."""
    settings = vars(made.content["args"])
    task = {name: settings.pop(name) for name in ("source_lang", "target_lang")}
    made.content["cfg"] = {
        "task": {**task, "_name": "translation"},
        "model": argparse.Namespace(**settings, _name="transformer"),
    }
    made.content["args"] = None
    made.save()
    assert_same_model(made)


def test_settings_as_an_omegaconf_tree(made):
    container, node = type("DictConfig", (), {}), type("AnyNode", (), {})

    def tree(value):
        if isinstance(value, dict):
            made_of = container()
            made_of.__dict__["_content"] = {name: tree(item) for name, item in value.items()}
        else:
            made_of = node()
            made_of.__dict__["_val"] = value
        return made_of

    settings = vars(made.content["args"])
    model = {name: value for name, value in settings.items() if not name.startswith(("encoder_", "decoder_"))}
    for side in ("encoder", "decoder"):
        model[side] = {name[8:]: value for name, value in settings.items() if name.startswith(side)}
    model["decoder"] |= {"input_dim": "${model.decoder.embed_dim}", "output_dim": "???"}
    groups = {"task": {"_name": "translation", "source_lang": "en", "target_lang": "de"}, "model": model}
    with modules(("omegaconf.dictconfig.DictConfig", container), ("omegaconf.nodes.AnyNode", node)):
        made.content |= {"cfg": tree(groups), "args": None}
        made.save()
    assert_same_model(made)


def test_names_of_older_releases(made):
    tensors = made.content["model"]
    for name in [name for name in tensors if ".q_proj." in name]:
        packed = torch.cat([tensors.pop(name.replace("q_proj", f"{part}_proj")) for part in "qkv"])
        tensors[name.replace("q_proj.", "in_proj_")] = packed
    norms = {
        "encoder": ("self_attn_layer_norm", "final_layer_norm"),
        "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
    }
    for name in [name for name in tensors if "layer_norm" in name]:
        side, module = name.split(".")[0], name.split(".")[3]
        tensors[name.replace(module, f"layer_norms.{norms[side].index(module)}")] = tensors.pop(name)
    tensors["decoder.embed_out"] = tensors.pop("decoder.output_projection.weight")
    tensors["encoder.embed_positions.weights"] = torch.zeros(50, WIDTH)
    made.save(_use_new_zipfile_serialization=False)
    assert_same_model(made)


def test_copies_that_the_last_release_adds(made):
    """Models that it trained have zeros there, as it only fills them in when it loads."""
    for layer in ("encoder.layers.0", "encoder.layers.1"):
        for name in ("in_proj", "out_proj", "fc1", "fc2"):
            made.content["model"] |= {
                f"{layer}.{name}_weight": torch.zeros(6, 2),
                f"{layer}.{name}_bias": torch.zeros(6),
            }
    made.save()
    assert_same_model(made)


def test_a_projection_that_is_only_the_embedding(kept, tmp_path):
    made = copy(kept["M2M100"], tmp_path)
    del made.content["model"]["decoder.output_projection.weight"]
    made.save()
    assert_same_model(made)


def test_which_file_is_read(made):
    made.path.rename(made.folder / "checkpoint_best.pt")
    (made.folder / "checkpoint_last.pt").write_bytes(b"other")
    assert_same_model(made)
    (made.folder / "checkpoint_best.pt").rename(made.folder / "checkpoint3.pt")
    with pytest.raises(ExportError, match=r"it has 2 .pt files, and none is called checkpoint_best.pt or model.pt"):
        FairseqReader().read(made.folder)


def target_ids(tokenizer):
    entry = tokenizer.entry
    assert isinstance(entry, SentencePieceTokenizerEntry)
    assert entry.target_ids is not None
    return json.loads(tokenizer.read(entry.target_ids))


def test_a_dictionary_that_overwrites_a_symbol(made):
    path = made.folder / "dict.de.txt"
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[-1] = "<unk> 0 #fairseq:overwrite"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    checkpoint = FairseqReader().read(made.folder)
    ids = target_ids(checkpoint.tokenizer)
    assert ids["<unk>"] == len(made.target_symbols) - 1


def test_dictionaries_have_other_line_ends_than_text(made):
    path = made.folder / "dict.de.txt"
    text = path.read_text(encoding="utf-8").replace("madeupword0000 ", "\N{LINE SEPARATOR}x\N{NEXT LINE}y ")
    path.write_text(text, encoding="utf-8")
    checkpoint = FairseqReader().read(made.folder)
    ids = target_ids(checkpoint.tokenizer)
    assert ids["\N{LINE SEPARATOR}x\N{NEXT LINE}y"] == len(made.target_symbols) - 1


def test_models_that_are_none(made):
    made.content["model"] = {name: t for name, t in made.content["model"].items() if name.startswith("decoder.")}
    refused(made, "its model is no encoder and decoder")
    made.content["model"] = {"encoder.version": 3}
    refused(made, "it is no fairseq checkpoint, whose tensors are under model")
    made.content["args"] = None
    refused(made, "it is no fairseq checkpoint, whose settings are under args")


def test_dictionaries_that_are_wrong(made):
    path = made.folder / "dict.de.txt"
    text = path.read_text(encoding="utf-8")
    path.write_text(text + "more 1\n", encoding="utf-8")
    size = len(made.target_symbols)
    refused(made, rf"dict.de.txt: it has {size + 1} symbols, and the model embeds {size}")
    path.write_text(text + text.splitlines()[0] + "\n", encoding="utf-8")
    refused(made, rf"dict.de.txt: line {size - 3} has the symbol .* again")
    path.write_text("word\n", encoding="utf-8")
    refused(made, r"dict.de.txt: line 1 is not a symbol, a space and a count")
