"""Folders of OpenNMT-tf, and what is wrong with them. The parity tests compare translations."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

from helpers.opennmt_tf_folders import END, NAMES, START, opennmt_tf_folder
from helpers.tensor_bundle_files import write_tensor_bundle
from translane_export.errors import ExportError
from translane_export.model import Transformer
from translane_export.sources.opennmt_tf import OpenNmtTfReader
from translane_export.sources.opennmt_tf_settings import Description, read_data_settings, read_description
from translane_export.sources.readers import find_reader, read_checkpoint
from translane_export.sources.tensor_bundles import read_tensor_bundle

SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
OUTPUT, KERNEL = "model/decoder/output_layer/kernel", "model/encoder/layers/0/ffn/layer/inner/kernel"
LABELS = "model/examples_inputter/labels_inputter/embedding"


@pytest.fixture
def made(tmp_path):
    """A folder to change."""
    return changeable("base", tmp_path)


def changeable(name, tmp_path):
    folder = shutil.copytree(opennmt_tf_folder(name).folder, tmp_path / name)
    return opennmt_tf_folder(name, folder)


def read(made):
    return read_checkpoint(find_reader(made.folder), made.folder)


def refused(made, message):
    with pytest.raises(ExportError, match=message) as caught:
        read(made)
    assert str(made.folder) in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_the_model_computes_what_opennmt_tf_does(name):
    made = opennmt_tf_folder(name)
    checkpoint = read(made)
    model = Transformer(checkpoint.config).eval()
    model.load_state_dict(checkpoint.state_dict)
    for text, forced in zip(made.expected["sources"], made.expected["forced"], strict=False):
        source, target = made.source_ids(text), [START, *made.target_ids(forced["target"])]
        with torch.inference_mode():
            found = model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([target]))[0]
        expected = torch.tensor(forced["logits"])[:, made.places]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_what_tensors_and_files_say():
    configs = {name: read(opennmt_tf_folder(name)).config for name in NAMES}
    assert {name: config.tie_embeddings for name, config in configs.items()} == {
        "base": "none",
        "post_norm": "three-way",
        "relative": "two-way",
        "learned": "none",
    }
    assert [configs[name].norm for name in NAMES] == ["pre", "post", "pre", "pre"]
    assert [configs[name].heads for name in NAMES] == [4, 2, 2, 2]
    assert [configs[name].activation for name in NAMES] == ["relu", "gelu_tanh", "silu", "relu"]
    assert [configs[name].max_positions for name in NAMES] == [512, 512, 512, 128]
    assert (configs["relative"].positions, configs["relative"].relative_window) == ("none", 3)
    assert (configs["base"].encoder_layers, configs["base"].decoder_layers) == (2, 1)


def test_symbols_around_sources():
    expected = {"base": ([], []), "post_norm": ([], [END]), "relative": ([], []), "learned": ([START], [END])}
    for name, (before, after) in expected.items():
        checkpoint = read(opennmt_tf_folder(name))
        assert checkpoint.tokenizer.entry.source_eos == bool(after)
        templates = checkpoint.languages.templates.source
        assert [id_ for tokens in templates.values() for id_ in tokens.source_prefix] == before


def test_the_latest_of_several_checkpoints(made):
    arrays = {name: tensor.numpy() for name, tensor in read_tensor_bundle(made.folder / "ckpt-5", "model/.*").items()}
    write_tensor_bundle(made.folder / "ckpt-6", arrays)
    changed = arrays | {OUTPUT + SUFFIX: arrays[OUTPUT + SUFFIX] * 2}
    slot = f"optimizer/m/{OUTPUT}/.OPTIMIZER_SLOT/optimizer/m{SUFFIX}"
    other = f"{OUTPUT}/.OPTIMIZER_SLOT/optimizer/m{SUFFIX}"
    write_tensor_bundle(made.folder / "ckpt-7", {**changed, slot: arrays[OUTPUT + SUFFIX], other: np.zeros(2)})
    (made.folder / "checkpoint").write_text(
        'model_checkpoint_path: "/elsewhere/ckpt-7"\nall_model_checkpoint_paths: ""\n'
    )
    found = read(made).state_dict["output_projection.weight"]
    weight = read(opennmt_tf_folder("base")).state_dict["output_projection.weight"]
    torch.testing.assert_close(found, weight * 2)
    (made.folder / "checkpoint").unlink()
    refused(made, "it has 3 .index files; leave the one to export")


def test_vocabularies_without_settings(made):
    (made.folder / "data.yml").unlink()
    assert read(made).config.target_vocab_size == len(made.target)
    (made.folder / "source.vocab").rename(made.folder / "en.vocab")
    refused(made, "it is not clear which file is the source side's vocabulary")


def test_a_vocabulary_that_has_the_unknown_word(made):
    path = made.folder / "source.vocab"
    path.write_text(path.read_text() + "<unk>\n")
    assert read(made).config.source_vocab_size == len(made.source)


@pytest.mark.parametrize(
    ("text", "heads", "activation"),
    [
        ('from opennmt import models\nmodel = lambda: models.get_model_from_catalog("TransformerBig")\n', 16, "relu"),
        ('import opennmt\nmodel = opennmt.models.load_model_from_catalog("Transformer")', 8, "relu"),
        ("model = lambda: Transformer(None, None, 6, 512, 4)", 4, "relu"),
        ("def model():\n    return opennmt.models.TransformerTiny()", 2, "relu"),
        (
            "class M(Transformer):\n    def __init__(self):\n        super().__init__(num_heads=16)\nmodel = M",
            16,
            "relu",
        ),
        ("model = lambda: Transformer(ffn_activation=tensorflow.nn.gelu)", 8, "gelu"),
        ("model = lambda: Transformer(ffn_activation=opennmt.layers.gelu)", 8, "gelu_tanh"),
    ],
)
def test_descriptions(tmp_path, text, heads, activation):
    (tmp_path / "model_description.py").write_text(text)
    assert read_description(tmp_path / "model_description.py") == Description(heads, activation)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model = Transformer(", "it is no Python file"),
        ("\0", "it is no Python file"),
        ("x = " + "(" * 5000, "it is no Python file"),
        ("x = " + "a." * 40_000 + "b\n", "it does not make one Transformer|it is no Python file"),
        ("#" * 200_000, "it has 200,000 characters, and at most 100,000 are read"),
        ("model = None", "it does not make one Transformer, nor name one of OpenNMT-tf's catalog"),
        ("a = Transformer(num_heads=4)\nb = Transformer(num_heads=8)", "it does not make one Transformer"),
        ('model = get_model_from_catalog("NMTSmallV1")', "its model is 'NMTSmallV1', and only Transformer, "),
        ("model = get_model_from_catalog(name)", "its model is None, and only Transformer, "),
        ("model = Transformer(num_heads=HEADS)", "num_heads is not written as a number, and the file is not run"),
        ("model = Transformer(num_heads=True)", "num_heads is not written as a number"),
        ("model = Transformer(ffn_activation=tf.nn.tanh)", "ffn_activation is tf.nn.tanh, and only tf.nn.relu, "),
        ("model = Transformer(ffn_activation=lambda x: x)", "ffn_activation is no name, and only"),
        ("model = Transformer(num_heads=5)", "it has 5 heads, which do not divide the model's size of 16"),
        ("model = Transformer(num_heads=0)", "it has 0 heads, which do not divide"),
    ],
)
def test_descriptions_that_are_refused(made, text, message):
    (made.folder / "model_description.py").write_text(text)
    refused(made, message)


def test_a_description_is_not_run(made):
    (made.folder / "model_description.py").write_text("raise SystemExit\nmodel = Transformer(num_heads=4)\n")
    assert read(made).config.heads == 4
    (made.folder / "model_description.py").unlink()
    refused(made, "model_description.py: the file is missing. OpenNMT-tf saves it beside checkpoints")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data:\n  source_vocabulary: [a, b]\n", "data has no source_vocabulary that is one file"),
        ("data:\n  source_vocabulary: source.vocab\n", "data has no target_vocabulary that is one file"),
        ("data:\n  nonsense\n", "in the block data, line 1 is no setting"),
        ("data:\n  source_vocabulary: a\n  target_vocabulary: b\n", "a: the file is missing"),
    ],
)
def test_settings_that_are_wrong(made, text, message):
    (made.folder / "data.yml").write_text(text)
    refused(made, message)


def test_settings_of_several_files(made):
    (made.folder / "train.yaml").write_text("train:\n  batch_size: 3\n")
    read(made)
    (made.folder / "other.yaml").write_text("data:\n    source_vocabulary: source.vocab\n")
    refused(made, "data.yml and other.yaml both have a block data; leave one")


@pytest.mark.parametrize(
    "value", ["{start: false, end: yes}", "\n    end: True  # of sources", "\n      start: no\n      end: on"]
)
def test_forms_of_yaml(made, value):
    vocabularies = "  source_vocabulary: source.vocab  # words\n  target_vocabulary: 'target.vocab'\n"
    text = f"model_dir: run\ndata:\n\n{vocabularies}  source_sequence_controls: {value}\ntrain:\n  start: true\n"
    (made.folder / "data.yml").write_text(text)
    settings = read_data_settings(made.folder)
    assert (settings.source_start, settings.source_end) == (False, True)
    assert (settings.source.name, settings.target.name) == ("source.vocab", "target.vocab")


def test_vocabularies_that_are_wrong(made):
    path = made.folder / "target.vocab"
    text = path.read_text()
    path.write_text(text.replace("</s>\n", ""))
    refused(made, "target.vocab: the special word '</s>' is not there")
    path.write_text(text + "<s>\n")
    refused(made, r"target.vocab: '<s>' is there twice, as words 1 and \d+")
    path.write_text(text + "more\n")
    refused(made, rf"the tensor {LABELS} is \[\d+, 16\], and its vocabulary has \d+ words with <unk>")


def test_tensors_that_are_missing_or_others(made):
    tensors = read_tensor_bundle(made.folder / "ckpt-5", f"model/.*{SUFFIX}")
    arrays = {name.removesuffix(SUFFIX): tensor.numpy() for name, tensor in tensors.items()}

    def save(changed):
        write_tensor_bundle(made.folder / "ckpt-5", {name + SUFFIX: array for name, array in changed.items()})

    without = {name: array for name, array in arrays.items() if name != KERNEL}
    save(without)
    refused(made, f"the tensor {KERNEL} is missing")
    save({**arrays, KERNEL: np.zeros(3, np.float32)})
    refused(made, rf"the tensor {KERNEL} is \[3\], and it should be a table")
    save({**arrays, "model/encoder/layers/0/bridge/kernel": np.zeros((2, 2), np.float32)})
    refused(made, "the tensor model/encoder/layers/0/bridge/kernel has no place in the model")
    save({name.removeprefix("model/"): array for name, array in arrays.items()})
    refused(made, "it has no tensor of a model as OpenNMT-tf 2 saves them, under model/")
    save({name: array for name, array in arrays.items() if name != LABELS})
    refused(made, "the sides share their embeddings, and their vocabularies differ")
    save({**arrays, OUTPUT: arrays[OUTPUT].astype(np.int32)})
    refused(made, "the tensor 'model/decoder/output_layer .* is in slices or no plain numbers")


def test_heads_that_the_vectors_of_distances_do_not_have(tmp_path):
    made = changeable("relative", tmp_path)
    path = made.folder / "model_description.py"
    path.write_text(path.read_text().replace("num_heads=2", "num_heads=4"))
    refused(made, r"relative_position_keys is \[1, 7, 8\], where its settings make it \[1, 7, 4\]")


def test_a_folder_without_sentencepiece(made):
    for path in made.folder.glob("*.model"):
        path.unlink()
    refused(made, "it has no SentencePiece model, a file that ends in .model or .spm")


def test_a_folder_without_an_index_is_of_another_format(tmp_path):
    assert not OpenNmtTfReader().recognises(tmp_path)
