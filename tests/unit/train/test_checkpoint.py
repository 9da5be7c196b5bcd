import json
from typing import Any

import pytest
import torch
from safetensors import safe_open

from translane_export.core.checkpoint import load_checkpoint, load_tensors, save_checkpoint, save_tensors
from translane_export.core.errors import ExportError
from translane_export.model import Transformer, TransformerConfig
from translane_server.bundle.manifest import JsonTokenizerEntry, SentencePieceTokenizerEntry

CONFIG = TransformerConfig(
    source_vocab_size=11, target_vocab_size=13, d_model=8, encoder_layers=1, decoder_layers=1, heads=2, ffn_size=8
)
FILES = {"config.json", "model.safetensors", "samples.txt", "source.spm", "target.spm"}


@pytest.fixture
def save(tmp_path):
    def write(name="checkpoint", **overrides):
        for side in ("source", "target"):
            (tmp_path / f"{side}.model").write_bytes(side.encode())
        values: dict[str, Any] = {
            "config": CONFIG,
            "state_dict": Transformer(CONFIG).state_dict(),
            "source_tokenizer": tmp_path / "source.model",
            "target_tokenizer": tmp_path / "target.model",
            "source_language": "zh",
            "target_language": "en",
            "samples": ("我有一只猫。", "你好"),
            "metadata": {"steps": 5},
            **overrides,
        }
        save_checkpoint(tmp_path / name, **values)
        return tmp_path / name

    return write


def test_what_is_saved_is_loaded(save):
    model = Transformer(CONFIG)
    checkpoint = load_checkpoint(save(state_dict=model.state_dict()))
    assert checkpoint.config == CONFIG
    assert checkpoint.state_dict.keys() == model.state_dict().keys()
    assert all(torch.equal(checkpoint.state_dict[name], tensor) for name, tensor in model.state_dict().items())
    tokenizer, entry = checkpoint.tokenizer, checkpoint.tokenizer.entry
    assert isinstance(entry, SentencePieceTokenizerEntry)
    assert [tokenizer.read(name) for name in (entry.source, entry.target)] == [b"source", b"target"]
    assert (checkpoint.languages.source, checkpoint.languages.target) == (("zh",), ("en",))
    assert (checkpoint.samples, checkpoint.metadata) == (("我有一只猫。", "你好"), {"steps": 5})


@pytest.mark.parametrize("marks", [(True, True), (True, False), (False, True), (False, False)])
def test_a_tokenizer_json_for_each_side(save, marks):
    start, end = marks
    checkpoint = load_checkpoint(save(tokenizer_kind="tokenizers", source_start=start, source_end=end))
    assert checkpoint.tokenizer.entry == JsonTokenizerEntry(file="source.json", target="target.json", source_eos=end)
    assert [checkpoint.tokenizer.read(f"{side}.json") for side in ("source", "target")] == [b"source", b"target"]
    prefixes = {tag: tokens.source_prefix for tag, tokens in checkpoint.languages.templates.source.items()}
    assert prefixes == ({"zh": (CONFIG.bos_id,)} if start else {})
    with pytest.raises(ExportError, match=r"source.json, target.json, and no SentencePiece models"):
        checkpoint.tokenizer.sentencepiece_models()


def test_whoever_may_read_the_config_may_read_the_weights(save):
    directory = save()
    assert len({(directory / name).stat().st_mode for name in ("config.json", "model.safetensors")}) == 1


def test_tied_weights_are_stored_once_and_stay_tied(save):
    directory = save()
    with safe_open(directory / "model.safetensors", framework="pt") as file:
        stored = set(file.keys())
    tied = {"decoder.embedding.tokens.weight", "output_projection.weight"}
    assert len(stored & tied) == 1
    state = load_checkpoint(directory).state_dict
    assert len({state[name].data_ptr() for name in tied}) == 1


def test_saving_again_replaces_and_leaves_nothing_behind(save, tmp_path):
    save()
    directory = save(metadata={"steps": 6})
    assert load_checkpoint(directory).metadata == {"steps": 6}
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint", "source.model", "target.model"}
    assert {path.name for path in directory.iterdir()} == FILES


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_missing_file_is_named(save, name):
    directory = save()
    (directory / name).unlink()
    with pytest.raises(ExportError, match=f"{name}: the file is missing"):
        load_checkpoint(directory)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": "other"}, "not a Translane checkpoint"),
        ({"format_version": 2}, "format version 2 is not supported; this release reads 1"),
        ({"model": {"d_model": 8}}, "missing Transformer settings"),
        ({"model": CONFIG.to_dict() | {"layers": 6, "depth": 6}}, "unknown Transformer settings: depth, layers"),
        ({"model": 5}, "config.json"),
        ({"tokenizer": {"kind": "sentencepiece", "source": "source.spm"}}, "the key 'target' is missing"),
        ({"tokenizer": {"kind": "other", "source": "source.spm", "target": "target.spm"}}, "tokenizer kind 'other'"),
        (
            {"tokenizer": {"kind": "tokenizers", "source": "source.spm", "target": "target.spm", "source_start": 1}},
            "source_start and source_end of the tokenizer are not true or false",
        ),
    ],
)
def test_a_wrong_description_is_refused(save, change, reason):
    path = save() / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ExportError, match=reason):
        load_checkpoint(path.parent)


def test_tensors_of_equal_values_stay_apart_and_views_are_whole(tmp_path):
    base = torch.arange(6.0).reshape(2, 3)
    save_tensors(tmp_path / "a.safetensors", {"base": base, "same": base, "view": base.T, "empty": torch.empty(0)}, "n")
    stored = load_tensors(tmp_path / "a.safetensors")
    assert stored.note == "n"
    assert torch.equal(stored.tensors["same"], base)
    assert torch.equal(stored.tensors["view"], base.T)
    assert stored.tensors["empty"].numel() == 0
