"""What only fairseq, OpenNMT-py and Marian have: settings, names and vocabularies of several releases."""

import json
import re
import shutil
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding

from helpers import foreign_folders
from helpers.checkpoint_formats import FORMATS
from helpers.pickled_checkpoints import WIDTH, modules
from translane_export.core.errors import ExportError
from translane_export.sources.marian import generation_settings
from translane_export.sources.placed_tensors import sinusoids
from translane_server.bundle.manifest import SentencePieceTokenizerEntry


@pytest.fixture
def changing(tmp_path):
    return lambda name: FORMATS[name](tmp_path / "folder")


@pytest.fixture
def fairseq(changing):
    return changing("fairseq")


@pytest.fixture
def opennmt(changing):
    return changing("OpenNMT-py")


@pytest.fixture
def marian(changing):
    return changing("Marian .npz")


def test_sinusoids_of_fairseq_reach_to_the_last_position(changing):
    subject = changing("fairseq, norms first")
    long = torch.randint(4, len(subject.symbols[0]), (1, 48), generator=torch.Generator().manual_seed(0))
    model = subject.model()
    assert model.config.max_positions == 48
    with torch.inference_mode():
        found, expected = (logits(long, torch.tensor([48]), long) for logits in (model, subject.logits))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_how_it_decodes(changing):
    config = changing("fairseq").read().config
    assert (config.bos_id, config.pad_id, config.eos_id, config.unk_id) == (0, 1, 2, 3)
    assert config.start_id == config.eos_id
    assert config.suppressed_ids == (1,)


def test_settings_of_newer_releases_are_an_omegaconf_tree(fairseq):
    container, node = type("DictConfig", (), {}), type("AnyNode", (), {})

    def tree(value):
        if isinstance(value, dict):
            made_of = container()
            made_of.__dict__["_content"] = {name: tree(item) for name, item in value.items()}
        else:
            made_of = node()
            made_of.__dict__["_val"] = value
        return made_of

    settings = vars(fairseq.made.content["args"])
    model = {name: value for name, value in settings.items() if not name.startswith(("encoder_", "decoder_"))}
    for side in ("encoder", "decoder"):
        model[side] = {name[8:]: value for name, value in settings.items() if name.startswith(side)}
    model["decoder"] |= {"input_dim": "${model.decoder.embed_dim}", "output_dim": "???"}
    groups = {"task": {"_name": "translation", "source_lang": "en", "target_lang": "de"}, "model": model}
    with modules(("omegaconf.dictconfig.DictConfig", container), ("omegaconf.nodes.AnyNode", node)):
        fairseq.made.content |= {"cfg": tree(groups), "args": None}
        fairseq.made.save()
    fairseq.assert_same()


def test_names_of_older_releases(fairseq):
    tensors = fairseq.weights
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
    fairseq.made.save(_use_new_zipfile_serialization=False)
    fairseq.assert_same()


def test_copies_that_the_last_release_adds(fairseq):
    """Models that it trained have zeros there, as it only fills them in when it loads."""
    for layer in ("encoder.layers.0", "encoder.layers.1"):
        for name in ("in_proj", "out_proj", "fc1", "fc2"):
            fairseq.weights |= {f"{layer}.{name}_weight": torch.zeros(6, 2), f"{layer}.{name}_bias": torch.zeros(6)}
    fairseq.made.save()
    fairseq.assert_same()


def test_a_projection_that_is_only_the_embedding(changing):
    subject = changing("fairseq, norms first")
    del subject.weights["decoder.output_projection.weight"]
    subject.save()
    subject.assert_same()


def test_which_file_is_read(fairseq):
    fairseq.made.path.rename(fairseq.made.folder / "checkpoint_best.pt")
    (fairseq.made.folder / "checkpoint_last.pt").write_bytes(b"other")
    fairseq.assert_same()
    (fairseq.made.folder / "checkpoint_best.pt").rename(fairseq.made.folder / "checkpoint3.pt")
    with pytest.raises(ExportError, match=r"it has 2 .pt files, and none is called checkpoint_best.pt or model.pt"):
        fairseq.read()


def ids_of(tokenizer, side):
    assert isinstance(tokenizer.entry, SentencePieceTokenizerEntry)
    name = getattr(tokenizer.entry, f"{side}_ids")
    assert name is not None
    return json.loads(tokenizer.read(name))


@pytest.mark.parametrize("symbol", ["<unk>", "\N{LINE SEPARATOR}x\N{NEXT LINE}y"], ids=["overwritten", "line ends"])
def test_dictionaries_may_overwrite_a_symbol_and_have_other_line_ends_than_text(fairseq, symbol):
    path = fairseq.made.folder / "dict.de.txt"
    flag = " #fairseq:overwrite" if symbol == "<unk>" else ""
    text = path.read_text(encoding="utf-8").replace("madeupword0000 1", f"{symbol} 1{flag}")
    path.write_text(text, encoding="utf-8")
    assert ids_of(fairseq.read().tokenizer, "target")[symbol] == len(fairseq.made.target_symbols) - 1


def test_models_that_are_none(fairseq):
    fairseq.made.content["model"] = {
        name: t for name, t in fairseq.made.content["model"].items() if name.startswith("decoder.")
    }
    assert re.search("its model is no encoder and decoder", fairseq.refused())
    fairseq.made.content["model"] = {"encoder.version": 3}
    assert re.search("it is no fairseq checkpoint, whose tensors are under model", fairseq.refused())
    fairseq.made.content["args"] = None
    assert re.search("it is no fairseq checkpoint, whose settings are under args", fairseq.refused())


def test_dictionaries_that_are_wrong(fairseq):
    path = fairseq.made.folder / "dict.de.txt"
    text = path.read_text(encoding="utf-8")
    path.write_text(text + "more 1\n", encoding="utf-8")
    size = len(fairseq.made.target_symbols)
    assert re.search(rf"dict.de.txt: it has {size + 1} symbols, and the model embeds {size}", fairseq.refused())
    path.write_text(text + text.splitlines()[0] + "\n", encoding="utf-8")
    assert re.search(rf"dict.de.txt: line {size - 3} has the symbol .* again", fairseq.refused())
    path.write_text("word\n", encoding="utf-8")
    assert re.search(r"dict.de.txt: line 1 is not a symbol, a space and a count", fairseq.refused())


@pytest.mark.parametrize(("name", "function"), [("silu", functional.silu), ("gated-gelu", functional.gelu)])
def test_gated_feed_forward(opennmt, name, function):
    """Compared with the layer's formula, on the first layer of the encoder."""
    generator = torch.Generator().manual_seed(0)
    for tensor_name, tensor in list(opennmt.weights.items()):
        if ".w_1." in tensor_name:
            third = torch.randn(tensor.shape, generator=generator) * 0.2
            opennmt.weights[tensor_name.replace("w_1", "w_3")] = third
    opennmt.settings["pos_ffn_activation_fn"] = name
    opennmt.save()
    model = opennmt.model()

    def linear(part, x):
        module = f"encoder.transformer.0.feed_forward.{part}"
        return functional.linear(x, opennmt.weights[f"{module}.weight"], opennmt.weights[f"{module}.bias"])

    x = torch.randn(1, 3, model.config.d_model, generator=generator)
    expected = linear("w_2", function(linear("w_1", x)) * linear("w_3", x))
    layer: Any = model.encoder.layers[0]
    with torch.inference_mode():
        torch.testing.assert_close(layer.feed_forward(x), expected, rtol=0, atol=1e-5)


def test_another_start_token(opennmt):
    opennmt.made.content["vocab"]["decoder_start_token"] = "</s>"
    opennmt.made.save()
    assert opennmt.read().config.start_id == 3


def test_long_tables_of_positions_are_cut(opennmt):
    for side in ("encoder", "decoder"):
        opennmt.weights[f"{side}.embeddings.make_embedding.pe.pe"] = torch.zeros(5000, 1, 32)
    opennmt.save()
    assert opennmt.read().config.max_positions == 1024


def test_source_words_that_have_the_ids_of_the_targets_start_and_end(changing):
    """Before version 3 sources had neither, and these ids were words; they are others now, with the same vectors."""
    subject = changing("OpenNMT-py 2")
    checkpoint, made = subject.read(), subject.made
    ids, size = ids_of(checkpoint.tokenizer, "source"), len(made.source_symbols)
    assert list(ids) == made.source_symbols
    assert list(ids.values()) == [0, 1, size, size + 1, *range(4, size)]
    vectors = checkpoint.state_dict["encoder.embedding.tokens.weight"][list(ids.values())]
    assert torch.equal(vectors, made.model.source.weight)


def test_vocabularies_that_are_wrong(opennmt):
    vocabularies = opennmt.made.content["vocab"]
    for change, message in (
        ({"src": None}, "it has no list of tokens under vocab.src, where OpenNMT-py saves them"),
        ({"src": [*opennmt.made.source_symbols, "more"]}, r"vocab.src has \d+ tokens, and the model embeds \d+"),
        ({"src": ["<blank>", "<unk>", *opennmt.made.source_symbols[2:]]}, "<blank> is not the same id in vocab.src an"),
        ({"tgt": [*opennmt.made.target_symbols[:3], "x", *opennmt.made.target_symbols[4:]]}, "vocab.tgt has no </s>"),
        ({"src_feats": [["a"]]}, "source features are not supported"),
    ):
        opennmt.made.content["vocab"] = {**vocabularies, **change}
        assert re.search(message, opennmt.refused())


def test_files_that_are_no_checkpoints(opennmt):
    opennmt.write = lambda subject: subject.made.save()
    opennmt.made.content["generator"] = None
    assert re.search("it is no OpenNMT-py checkpoint, whose tensors are under model and generator", opennmt.refused())
    opennmt.made.content["opt"] = [1]
    assert re.search("it is no OpenNMT-py checkpoint, whose settings are under opt", opennmt.refused())
    shutil.copyfile(opennmt.made.path, opennmt.made.folder / "other.pt")
    assert re.search(r"it has 2 .pt files; leave the one to export", opennmt.refused())


def test_sinusoids_of_fairseq_are_rounded_as_in_training():
    """To the bit, as in transformers, whose tables are fairseq's."""
    theirs = M2M100SinusoidalPositionalEmbedding.get_embedding(1024, 512, None)
    assert torch.equal(sinusoids(0, 1024, 512), theirs)


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
