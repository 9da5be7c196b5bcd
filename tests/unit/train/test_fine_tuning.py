"""Runs that start from a checkpoint's weights."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch

from helpers.bundles import random_checkpoint
from helpers.commands import train as main
from helpers.demo import DEMO
from helpers.tiny_corpus import write_pairs
from translane_export.core.checkpoint import load_checkpoint, load_tensors


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "first" / "best"
    folder.parent.mkdir()
    return random_checkpoint(folder, dropout=0.2, activation="gelu", norm="pre")


@pytest.fixture
def flags(tmp_path, checkpoint):
    return [
        f"--train={write_pairs(tmp_path / 'train.tsv', 40, 1)}",
        f"--valid={write_pairs(tmp_path / 'valid.tsv', 6, 2)}",
        f"--output={tmp_path / 'run'}",
        f"--init={checkpoint}",
        *("--max-steps=2", "--valid-every=1", "--average=1", "--max-tokens=256", "--threads=1"),
        *("--device=cpu", "--precision=fp32"),
    ]


def test_a_run_starts_from_the_weights_and_keeps_sizes_languages_and_vocabularies(flags, tmp_path, checkpoint):
    assert main([*flags, "--max-steps=1", "--learning-rate=1e-12", "--warmup-steps=0", "--dropout=0.0"]) == 0
    before, after = load_checkpoint(checkpoint), load_checkpoint(tmp_path / "run" / "best")
    assert after.languages == before.languages
    assert (before.config.dropout, after.config.dropout) == (0.2, 0.0)
    assert {**after.config.to_dict(), "dropout": 0.2} == before.config.to_dict()
    for name, tensor in before.state_dict.items():
        assert torch.allclose(after.state_dict[name], tensor, atol=1e-9), name
    for ours, theirs in zip(
        after.tokenizer.sentencepiece_models(), before.tokenizer.sentencepiece_models(), strict=True
    ):
        assert ours.read_bytes() == theirs.read_bytes()
    assert after.metadata["initialised_from"] == "first/best"
    assert str(tmp_path) not in json.dumps(after.metadata)


def test_the_weights_learn(flags: list[str], tmp_path: Path, checkpoint: Path) -> None:
    # values that are the checkpoint's may be given, too
    given = ["--heads=2", "--norm=pre", "--source-language=zh-Hans", "--target-language=EN", "--head-size=16"]
    assert main([*flags, *given, "--kv-heads=2", "--warmup-steps=0"]) == 0
    after = load_checkpoint(tmp_path / "run" / "best")
    assert after.languages.source == ("zh-Hans",)
    assert after.config.dropout == 0.2
    before = load_checkpoint(checkpoint).state_dict
    assert not all(torch.equal(after.state_dict[name], before[name]) for name in before)


def test_a_resumed_run_goes_on_from_its_own_state(flags, tmp_path, checkpoint):
    elsewhere = tmp_path / "copied" / "best"
    shutil.copytree(checkpoint, elsewhere)
    assert main([*flags, f"--init={elsewhere}", "--max-steps=1"]) == 0
    shutil.rmtree(elsewhere)
    assert main([*flags, f"--init={elsewhere}", "--resume"]) == 0
    assert load_checkpoint(tmp_path / "run" / "latest").metadata["initialised_from"] == "copied/best"
    whole = tmp_path / "whole"
    assert main([*flags, f"--output={whole}"]) == 0
    ours, theirs = (load_tensors(run / "resume.safetensors").tensors for run in (tmp_path / "run", whole))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize(
    ("more", "code", "sentence"),
    [
        (["--heads=4"], 2, "--heads: 4 is asked for, but the checkpoint first/best has 2"),
        (["--kv-heads=1"], 2, "--kv-heads: 1 is asked for, but the checkpoint first/best has 2"),
        (["--value-size=8"], 2, "--value-size: 8 is asked for, but the checkpoint first/best has 16"),
        (["--no-attention-biases"], 2, "--attention-biases: false is asked for, but the checkpoint first/best has tr"),
        (["--norm=post"], 2, "--norm: post is asked for, but the checkpoint first/best has pre"),
        (["--no-scale-embeddings"], 2, "--scale-embeddings: false is asked for, but the checkpoint first/best has tr"),
        (["--preset=tiny"], 2, "--preset tiny: d_model: 64 is asked for, but the checkpoint first/best has 32"),
        (["--source-language=de"], 2, "--source-language: de is asked for, but the checkpoint first/best has zh"),
        (["--source-language=d e"], 2, "--source-language: must be given as a BCP-47 tag"),
        (["--vocabulary=char"], 2, "--vocabulary: --init keeps the checkpoint's; leave it out"),
        (["--source-word-vectors=a.vec"], 2, "--source-word-vectors: --init keeps the checkpoint's; leave it out"),
        (["--sampling-alpha=0.1"], 2, "is no unigram vocabulary, and knows one segmentation only"),
        ([f"--init={DEMO}"], 1, "zh-en: an int8 model cannot be fine-tuned"),
        (["--init=none"], 1, "checkpoint none: there is no such folder"),
    ],
)
def test_what_contradicts_the_checkpoint_is_refused(flags, tmp_path, capfd, more, code, sentence):
    assert main([*flags, *more]) == code
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("translane train: ")
    assert sentence in line
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_in_the_output_folder_stays(flags, tmp_path, checkpoint, capfd):
    own = tmp_path / "run" / "best"
    shutil.copytree(checkpoint, own)
    before = (own / "model.safetensors").read_bytes()
    for more in ([], ["--resume"]):
        assert main([*flags, f"--init={own}", *more]) == 1
        assert "holds a checkpoint, and no run that --resume continues" in capfd.readouterr().err
    assert (own / "model.safetensors").read_bytes() == before


def test_another_checkpoints_vocabulary_is_not_evaluated(flags, tmp_path, checkpoint, capfd):
    swapped = tmp_path / "swapped"
    shutil.copytree(checkpoint, swapped)
    other = random_checkpoint(tmp_path / "other", joint=True)
    shutil.copyfile(other / "source.spm", swapped / "source.spm")
    assert main([f"--evaluate={swapped}", f"--test={tmp_path / 'valid.tsv'}"]) == 1
    assert re.search(r"source\.spm has \d+ pieces, and the model embeds \d+\n$", capfd.readouterr().err)


def test_weights_and_vocabularies_that_do_not_fit_are_refused(flags, tmp_path, checkpoint, capfd):
    for key, value, sentence in (
        ("ffn_size", 8, "first/best: the weights do not fit config.json"),
        ("source_vocab_size", 700, "pieces, and the model has 700"),
    ):
        broken = tmp_path / key / "first" / "best"
        shutil.copytree(checkpoint, broken)
        description = json.loads((broken / "config.json").read_text())
        description["model"][key] = value
        (broken / "config.json").write_text(json.dumps(description))
        assert main([*flags, f"--init={broken}", f"--output={tmp_path / key / 'run'}"]) == 1
        assert sentence in capfd.readouterr().err
