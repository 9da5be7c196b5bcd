"""Hugging Face folders are read whatever files they come in; what is wrong with one is one sentence."""

import json
import shutil
import subprocess
import sys
import zipfile

import pytest
import torch
from safetensors.torch import load_file, save_file

from helpers import foreign_folders, hugging_face
from helpers.refusals import refusal
from translane_export.core.errors import ExportError
from translane_export.model import Transformer
from translane_export.sources.architectures import MARIAN, T5
from translane_export.sources.huggingface import (
    generation_defaults,
    generation_settings,
    read_hugging_face,
    read_lengths,
    read_model,
    read_search,
    read_settings,
    suppressed_ids,
)
from translane_export.sources.readers import find_reader
from translane_server.bundle.manifest import SearchDefaults

WEIGHTS, BIN, INDEX = "model.safetensors", "pytorch_model.bin", "model.safetensors.index.json"
QUERY = "model.encoder.layers.0.self_attn.q_proj.weight"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A Marian folder; not to be written to."""
    folder = tmp_path_factory.mktemp("marian")
    hugging_face.draw(hugging_face.MODELS["Marian"]).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "model")


def read(folder, architecture=MARIAN):
    config, weights, origins = read_model(folder, architecture, read_settings(folder))
    assert origins.keys() <= weights.keys()
    return config, weights


def problem(folder, architecture=MARIAN):
    """What reading says, after having said where."""
    message = refusal(ExportError, read, folder, architecture)
    assert str(folder) in message
    return message


def edit(folder, name="config.json", **values):
    path = folder / name
    content = {**json.loads(path.read_text()), **values}
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not ...}))


def edit_tensors(folder, **tensors):
    weights = {**load_file(folder / WEIGHTS), **{name.replace("__", "."): tensor for name, tensor in tensors.items()}}
    kept = {name: tensor.clone() for name, tensor in weights.items() if tensor is not ...}
    (folder / WEIGHTS).unlink()  # what was loaded is a memory map of it
    save_file(kept, folder / WEIGHTS)


def in_shards(folder, suffix, save):
    weights = sorted(load_file(folder / WEIGHTS).items())
    parts = [dict(weights[0::2]), dict(weights[1::2])]
    names = [f"part-{number}.{suffix}" for number in range(2)]
    for name, part in zip(names, parts, strict=True):
        save({key: value.clone() for key, value in part.items()}, folder / name)
    index = {"weight_map": {key: name for name, part in zip(names, parts, strict=True) for key in part}}
    (folder / WEIGHTS).unlink()
    return index


def as_shards(folder):
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(in_shards(folder, "safetensors", save_file)))


def as_bin_shards(folder):
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(in_shards(folder, "bin", torch.save)))


def as_bin(folder, **how):
    weights = load_file(folder / WEIGHTS)
    # as such files do, with all names of a shared tensor
    weights |= {f"model.{side}.embed_tokens.weight": weights["model.shared.weight"] for side in ("encoder", "decoder")}
    weights["lm_head.weight"] = weights["model.shared.weight"]
    torch.save(weights, folder / "pytorch_model.bin", **how)
    (folder / WEIGHTS).unlink()


def as_old_bin(folder):
    as_bin(folder, _use_new_zipfile_serialization=False)


@pytest.mark.parametrize("change", [as_shards, as_bin_shards, as_bin, as_old_bin])
def test_every_kind_of_file_holds_the_same_model(saved, folder, change):
    change(folder)
    config, weights = read(folder)
    expected_config, expected = read(saved)
    assert config == expected_config
    assert weights.keys() == expected.keys() == Transformer(config).state_dict().keys()
    for name, tensor in expected.items():
        assert torch.equal(weights[name], tensor), name


def test_position_tables_of_the_file_count(folder):
    table = torch.randn(64, 32)
    edit_tensors(folder, model__encoder__embed_positions__weight=table)
    assert torch.equal(read(folder)[1]["encoder.embedding.positions.embedding.weight"], table)


def test_what_generation_config_says_counts(folder):
    edit(folder, bad_words_ids=[[7]], max_length=512, decoder_start_token_id=5)
    edit(folder, "generation_config.json", bad_words_ids=[[119], [3]], max_length=100, num_beams=6)
    settings = read_settings(folder)
    assert suppressed_ids(settings) == (3, 119)
    assert generation_defaults(settings)["num_beams"] == 6
    edit(folder, "generation_config.json", bad_words_ids=..., max_length=...)
    assert suppressed_ids(read_settings(folder)) == ()
    assert read_lengths(read_settings(folder)) == {}
    assert read(folder)[0].decoder_start_id == hugging_face.VOCABULARY - 1


def test_a_token_that_every_translation_starts_with(folder):
    """Of Marian, as of any architecture whose languages have no such token; transformers' `generate` does the same."""
    foreign_folders.marian(folder, codes=("deu", "fra"))
    edit(folder, forced_bos_token_id=9)
    assert not any(each.forced for each in read_hugging_face(MARIAN, folder).languages.templates.target.values())
    edit(folder, "generation_config.json", forced_bos_token_id=30)
    target = read_hugging_face(MARIAN, folder).languages.templates.target
    assert [tokens.forced for tokens in target.values()] == [(30,), (30,)]
    assert all(tokens.source_prefix for tokens in target.values())


def test_the_decoder_starts_with_padding_where_nothing_else_is_said(folder):
    for name in ("config.json", "generation_config.json"):
        edit(folder, name, decoder_start_token_id=...)
    assert read(folder)[0].start_id == hugging_face.VOCABULARY - 1


def test_the_end_is_never_suppressed(folder):
    edit(folder, "generation_config.json", bad_words_ids=[[0], [119]])
    assert read(folder)[0].suppressed_ids == (119,)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"bad_words_ids": [[3, 4]]}, "bad_words_ids is [3, 4], not a list of single ids"),
        ({"bad_words_ids": 3}, "bad_words_ids is 3, not a list"),
        ({"bad_words_ids": [3]}, "bad_words_ids is 3, not a list"),
        ({"bad_words_ids": [["a"]]}, "bad_words_ids holds 'a', and an id is a whole number from 0 to 119"),
        ({"suppress_tokens": 3}, "suppress_tokens is 3, not a list"),
        ({"suppress_tokens": [500]}, "suppress_tokens holds 500, and an id is a whole number from 0 to 119"),
    ],
)
@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_wrong_suppressed_ids(folder, values, message, name):
    edit(folder, "generation_config.json", bad_words_ids=...)
    if name == "config.json":  # which counts in older folders alone
        (folder / "generation_config.json").unlink()
    edit(folder, name, **values)
    assert f"{folder / name}: {message}" in problem(folder)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("key", ["pad_token_id", "bos_token_id", "decoder_start_token_id", "forced_bos_token_id"])
@pytest.mark.parametrize("value", [120, -5, 1.0, "1", True, [120]])
def test_wrong_ids_are_refused_in_either_file(folder, name, key, value):
    edit(folder, name, **{key: value})
    says = "holds 120" if value == [120] else f"is {value!r}"
    assert f"{folder / name}: {key} {says}, and an id is a whole number from 0 to 119" in problem(folder)


@pytest.mark.parametrize("unknown", [-1, 120, "1", None])
def test_a_wrong_id_of_unknown_pieces(folder, unknown):
    (folder / "vocab.json").write_text(json.dumps({"<unk>": unknown}))
    assert f"{folder / 'vocab.json'}: <unk> is {unknown!r}, and an id is" in problem(folder)


def test_weights_know_where_they_are(folder):
    as_shards(folder)
    origins = read_model(folder, MARIAN, read_settings(folder))[2]
    shard = json.loads((folder / f"{WEIGHTS}.index.json").read_text())["weight_map"][QUERY]
    assert origins["encoder.layers.0.self_attention.q_proj.weight"] == f"{folder / shard}: the tensor {QUERY}"


def put(name, content):
    """Puts a file in the place of the weights."""

    def change(folder):
        (folder / WEIGHTS).unlink()
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            torch.save(content, folder / name)

    return change


def cut(size):
    def change(folder):
        path = folder / WEIGHTS
        path.write_bytes(path.read_bytes()[:size])

    return change


def without_a_shard(folder):
    as_shards(folder)
    (folder / "part-1.safetensors").unlink()


def with_another_shard(folder):
    without_a_shard(folder)
    save_file({"x": torch.zeros(1)}, folder / "part-1.safetensors")


def with_an_archive(folder):
    (folder / WEIGHTS).unlink()
    with zipfile.ZipFile(folder / BIN, "w") as archive:
        archive.writestr("notes/a.txt", "x")


def with_a_program(folder):
    (folder / WEIGHTS).unlink()
    torch.jit.trace(torch.nn.Linear(2, 2), torch.zeros(2)).save(folder / BIN)


def header(text):
    return len(text).to_bytes(8, "little") + text


IN_PLACE_OF_FILES = {
    b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n": "it is a pointer of git-lfs, not the",
    b"\n<!DOCTYPE html>\n<html>": "it is an HTML page, as failed downloads leave behind, not a",
    b"hello, world": "it is no",
}


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / WEIGHTS).unlink(), "it has no weights"),
        (cut(0), f"{WEIGHTS}: it is empty, not a safetensors file"),
        (cut(5), f"{WEIGHTS}: it is cut off: it has 5 bytes, and its header alone takes"),
        (cut(4000), f"{WEIGHTS}: it is cut off: it has 4,000 bytes, and its header alone takes"),
        (cut(-1), "and its header tells of"),
        *(
            (put(name, content), f"{name}: {message}")
            for name in (WEIGHTS, BIN, INDEX)
            for content, message in IN_PLACE_OF_FILES.items()
        ),
        (put(WEIGHTS, header(b"{oops")), f"{WEIGHTS}: its header is damaged"),
        (put(WEIGHTS, header(b'{"x": 1}')), f"{WEIGHTS}: its header is damaged"),
        (put(WEIGHTS, header(b'{"x": {"dtype": "F7", "data_offsets": [0, 0]}}')), f"{WEIGHTS}: its header is damaged"),
        (with_an_archive, "it is a zip archive of other things, not a PyTorch file"),
        (with_a_program, "it is a TorchScript program, not tensors"),
        (put(BIN, [1]), "it holds a list"),
        (put(BIN, {"x": 1}), "'x' is a int, not a tensor"),
        (without_a_shard, f"part-1.safetensors: the file is missing, a shard that {INDEX} names"),
        (with_another_shard, f"which {INDEX} says is here, is missing"),
        (put(INDEX, b'{"weight_map": {"x": "../model.safetensors"}}'), "is not a file beside it"),
        (put(INDEX, b'{"weight_map": {"x": "/etc/passwd"}}'), "is not a file beside it"),
        (put(INDEX, b"[]"), "it is no index of shards"),
        (put(INDEX, b"{}"), "it is no index of shards"),
    ],
)
def test_weights_that_cannot_be_read(folder, change, message):
    change(folder)
    assert message in problem(folder)


def test_only_t5_that_scales_its_output_does_so(tmp_path):
    hugging_face.draw(hugging_face.MODELS["T5"]).save_pretrained(tmp_path)
    for values, scale in (
        ({"scale_decoder_outputs": ..., "tie_word_embeddings": True}, 32**-0.5),
        ({"scale_decoder_outputs": ..., "tie_word_embeddings": False}, 1.0),
        ({"scale_decoder_outputs": False, "tie_word_embeddings": True}, 1.0),
    ):
        edit(tmp_path, **values)
        assert read(tmp_path, T5)[0].logit_scale == scale


@pytest.mark.slow
def test_transformers_is_not_needed():
    code = "import sys, translane_export.bundle_writer; sys.exit('transformers' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{oops", "config.json: it is not JSON"),
        (b"\xff\xfe{", "config.json: it is not JSON"),
        (b"[1]", "config.json: it is not a JSON object"),
        (b"{}", "config.json: the key model_type is missing"),
        (b'{"model_type": "llama"}', "says model_type llama, and the models that are read are encoder-decoders"),
    ],
)
def test_a_configuration_that_tells_no_architecture_that_translates(folder, content, message):
    (folder / "config.json").write_bytes(content)
    with pytest.raises(ExportError, match=message):
        find_reader(folder)


# generation_config.json as search defaults. That they give what `generate` gives is shown in tests/parity.


@pytest.fixture
def search(tmp_path):
    def search(generation=None, **config):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "marian", **config}))
        if generation is not None:
            (tmp_path / "generation_config.json").write_text(json.dumps(generation))
        return read_search(generation_settings(read_settings(tmp_path)))

    return search


def test_config_json_counts_only_alone(search):
    assert search(num_beams=4).defaults == SearchDefaults(beam_size=4)
    assert search({}, num_beams=4).defaults == SearchDefaults()
    assert search({"num_beams": None}, num_beams=4).defaults == SearchDefaults()


def test_what_every_search_has_is_no_default(search):
    plain = {"num_beams": 1, "length_penalty": 1.0, "early_stopping": False, "repetition_penalty": 1, "min_length": 0}
    assert search({**plain, "no_repeat_ngram_size": 0, "temperature": 0.5, "do_sample": False}).defaults == (
        SearchDefaults()
    )
    assert str(SearchDefaults()) == "none"


def test_lengths(search, tmp_path):
    assert search({"min_length": 1}).defaults.min_length is None
    assert search({"min_length": 9, "min_new_tokens": 2}).defaults.min_length == 2
    for values, longest in (
        ({"max_length": 100}, {"default_max_length": 99}),
        ({"max_length": 100, "max_new_tokens": 7}, {"default_max_length": 7}),
        ({}, {}),
    ):
        search(values)
        assert read_lengths(read_settings(tmp_path)) == longest


@pytest.mark.parametrize(
    ("values", "left_out"),
    [
        ({"do_sample": True, "top_k": 5}, ["do_sample True"]),
        ({"num_beam_groups": 2, "diversity_penalty": 0.5}, ["num_beam_groups 2", "diversity_penalty 0.5"]),
        ({"num_beam_groups": 1, "diversity_penalty": 0.0, "sequence_bias": []}, []),
        ({"num_beams": 4, "early_stopping": "never"}, ["early_stopping 'never'"]),
        ({"num_beams": 4, "early_stopping": "never", "length_penalty": 0.0}, []),
        ({"length_penalty": 11}, ["length_penalty 11"]),
        ({"num_beams": 5000}, ["num_beams 5000"]),
        ({"repetition_penalty": 0.0}, ["repetition_penalty 0.0"]),
        ({"renormalize_logits": True, "num_beams": 4}, []),
        (
            {"renormalize_logits": True, "num_beams": 4, "no_repeat_ngram_size": 3},
            ["renormalize_logits True after other rules than bad_words_ids"],
        ),
    ],
    ids=str,
)
def test_what_the_server_does_not_do_is_named(search, values, left_out):
    assert list(search(values).left_out) == left_out


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_beams": "four"}, "num_beams is 'four', not a whole number of at most"),
        ({"num_beams": True}, "num_beams is True, not a whole number of at most"),
        ({"length_penalty": [1]}, "length_penalty is [1], not a number"),
        ({"early_stopping": "always"}, "early_stopping is 'always', not true or false"),
        ({"min_length": 1.5}, "min_length is 1.5, not a whole number of at most"),
        ({"renormalize_logits": "yes"}, "renormalize_logits is 'yes', not true or false"),
    ],
    ids=str,
)
def test_a_value_of_the_wrong_type_is_one_sentence(search, tmp_path, values, message):
    assert refusal(ExportError, search, values).startswith(f"{tmp_path / 'generation_config.json'}: {message}")
