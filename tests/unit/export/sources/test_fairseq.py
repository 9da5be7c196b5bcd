from __future__ import annotations

import argparse
import json
import shutil

import pytest
import torch

from helpers.driver import BundleDecoder
from helpers.pickled_checkpoints import WIDTH, Made, fairseq_checkpoint, generate, modules, random_sources
from translane_export.bundle_writer import export_checkpoint
from translane_export.errors import ExportError
from translane_export.model import Transformer
from translane_export.settings import ExportSettings
from translane_export.sources.fairseq import FairseqReader
from translane_server.bundle.bundle import load_bundle
from translane_server.bundle.manifest import SentencePieceTokenizerEntry
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Sentence

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


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_computes_what_it_did(kept, kind):
    assert FairseqReader().recognises(kept[kind].folder)
    assert_same_model(kept[kind])


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


def test_embeddings_are_tied_as_they_were(kept):
    ties = [FairseqReader().read(kept[kind].folder).config.tie_embeddings for kind in KINDS]
    assert ties == ["none", "three-way", "three-way"]


def test_languages_and_vocabularies(kept):
    made = kept["FSMT"]
    checkpoint = FairseqReader().read(made.folder)
    assert (checkpoint.languages.source, checkpoint.languages.target) == (("en",), ("de",))
    entry, files = checkpoint.tokenizer.entry, checkpoint.tokenizer
    assert isinstance(entry, SentencePieceTokenizerEntry)
    assert entry.source_eos
    for name, symbols in ((entry.source_ids, made.source_symbols), (entry.target_ids, made.target_symbols)):
        assert name is not None
        assert json.loads(files.read(name)) == {symbol: number for number, symbol in enumerate(symbols)}
    assert files.read(entry.source) == (made.folder / "spm.en.model").read_bytes()
    assert files.read(entry.target) == (made.folder / "spm.de.model").read_bytes()


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


def test_half_precision(kept, tmp_path):
    made = copy(kept["M2M100"], tmp_path)
    made.content["model"] = {name: tensor.half() for name, tensor in made.content["model"].items()}
    made.save()
    assert {tensor.dtype for tensor in FairseqReader().read(made.folder).state_dict.values()} == {torch.float32}
    torch.testing.assert_close(read_logits(made), expected_logits(made), rtol=0, atol=0.05)


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


WRONG_SETTINGS = {
    "encoder_layers_to_keep": ("0,1", "encoder_layers_to_keep is '0,1', which is not supported"),
    "adaptive_softmax_cutoff": ([100], r"adaptive_softmax_cutoff is \[100\], which is not supported"),
    "no_cross_attention": (True, "no_cross_attention is True, which is not supported"),
    "activation_fn": ("tanh", "activation_fn is 'tanh', and only relu, gelu, gelu_accurate, gelu_fast are supported"),
    "task": ("multilingual_translation", "its task is 'multilingual_translation', and only translation is supported"),
    "encoder_attention_heads": (
        4,
        "encoder_attention_heads is 4 and decoder_attention_heads is 2, and that they differ",
    ),
    "decoder_normalize_before": (True, "encoder_normalize_before and decoder_normalize_before differ"),
    "decoder_output_dim": (16, "decoder_output_dim is not the 32 of decoder_embed_dim"),
    "encoder_layers": ("2", "encoder_layers is '2', not a whole number"),
    "decoder_layers": (None, "the setting decoder_layers is missing"),
    "share_all_embeddings": ("yes", "share_all_embeddings is 'yes', not true or false"),
    "encoder_ffn_embed_dim": (41, "encoder_ffn_embed_dim is 41 and decoder_ffn_embed_dim is 40"),
    "source_lang": (None, "source_lang is None, and it says which dict.LANGUAGE.txt is whose"),
    "target_lang": ("fr", "dict.fr.txt: the file is missing; it numbers the model's symbols"),
}


@pytest.mark.parametrize("name", WRONG_SETTINGS)
def test_settings_that_are_not_supported(made, name):
    value, message = WRONG_SETTINGS[name]
    setattr(made.content["args"], name, value)
    refused(made, message)


def test_tensors_that_are_missing_left_over_or_of_other_shapes(made):
    name = "decoder.layers.1.encoder_attn.k_proj.weight"
    tensor = made.content["model"].pop(name)
    refused(made, f"the tensor {name} is missing")
    made.content["model"] |= {name: tensor[:3]}
    refused(made, rf"the tensor {name} is \[3, 32\], where its settings make it \[32, 32\]")
    made.content["model"] |= {name: tensor, "encoder.layers.0.c_attn": tensor, "encoder.layers.2.fc1.weight": tensor}
    refused(made, r"the tensor encoder.layers.0.c_attn and 1 more has no place in the model")


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


def test_tokenizers_that_are_wrong(made):
    models = sorted(made.folder.glob("*.model"))
    for path in models:
        path.rename(path.with_name(path.name.replace("spm.", "pieces")))
    refused(made, "it is not clear which is the source side's SentencePiece model")
    for path in made.folder.glob("*.model"):
        path.unlink()
    refused(made, r"it has no SentencePiece model, a file that ends in .model or .spm")
    (made.folder / "bpecodes").write_text("t h 5\n")
    refused(made, "bpecodes: subword-nmt, fastBPE and byte-level merges are not supported")
    (made.folder / "x.model").write_bytes(b"none")
    refused(made, r"x.model: it is not a SentencePiece model")


def test_the_tokenizer_of_another_model(made):
    path = made.folder / "dict.de.txt"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("".join(f"word@@{number} 1\n" for number, _ in enumerate(lines)), encoding="utf-8")
    refused(made, r"spm.de.model: only 3 of its \d+ pieces are in the model's vocabulary")


@pytest.fixture(scope="module")
def bundle(kept, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle") / "bundle"
    export_checkpoint(ExportSettings(checkpoint=kept["FSMT"].folder, output=folder, threads=1))
    return load_bundle(folder)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_bundle_translates_as_the_model_did(kept, bundle, beam_size):
    made = kept["FSMT"]
    batch = [[*source, 2] for source in random_sources(100, range(4, len(made.source_symbols)))]
    options = DecodingOptions(max_length=16, beam_size=beam_size)
    with BundleDecoder(bundle) as driver:
        found = driver.together([Sentence(source, options) for source in batch])
    wanted = generate(made.model, batch, beam_size, steps=16)
    assert [list(best.token_ids) for best, *_ in found] == wanted
    assert len({tuple(tokens) for tokens in wanted}) > 20
    assert {len(tokens) < 16 for tokens in wanted} == {True, False}


def test_a_bundles_texts(kept, bundle):
    """Pieces are numbered as the dictionaries say, and a source ends with </s>."""
    made, tokenizer = kept["FSMT"], BundleDecoder(bundle).tokenizer
    (encoded,) = tokenizer.encode(["the cat sat"])
    assert [made.source_symbols[number] for number in encoded] == tokenizer.source_pieces(encoded)
    assert (
        "".join(tokenizer.source_pieces(encoded))
        == "\N{LOWER ONE EIGHTH BLOCK}the\N{LOWER ONE EIGHTH BLOCK}cat\N{LOWER ONE EIGHTH BLOCK}sat</s>"
    )
    assert tokenizer.encode(["Ω"])[0][1:] == [3, 2]
