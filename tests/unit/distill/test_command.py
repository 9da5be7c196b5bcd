"""Whole runs of `translane distill`, tiny."""

import gzip
import json
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.bundles import SOURCES, TARGETS
from helpers.demo import DEMO
from helpers.foreign_folders import corpus
from helpers.foreign_models import FOREIGN_MODELS, hugging_face_folder
from translane.__main__ import main
from translane_export.checks.running import decode_greedily
from translane_export.core.checkpoint import load_checkpoint
from translane_export.sources.bundle import read_bundle
from translane_export.train.settings import TrainSettings
from translane_server.bundle.bundle import load_bundle
from translane_server.text.tokenizer import load_tokenizer


def _records(output: Path) -> list[dict[str, Any]]:
    lines = (output / "translated" / "sources.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _pairs(output: Path) -> list[list[str]]:
    return [line.split("\t") for line in (output / "train.tsv").read_text(encoding="utf-8").splitlines()]


def test_each_different_source_gets_the_translation_that_the_engine_gives_it(flags, tmp_path, capfd):
    assert main(flags(beam_size=1)) == 0
    bundle = load_bundle(DEMO)
    tokenizer = load_tokenizer(bundle)
    ids = [each.token_ids for each in decode_greedily(bundle, tokenizer.encode(SOURCES), (), 1)]
    assert _pairs(tmp_path / "out") == [list(pair) for pair in zip(SOURCES, tokenizer.decode(ids), strict=True)]
    assert [record["line"] for record in _records(tmp_path / "out")] == list(range(1, len(SOURCES) + 1))
    out, err = capfd.readouterr()
    assert "text.tsv: 30 lines, 10 different sources" in err
    assert "10 translations; 0 sources left out" in out


def test_the_student_starts_from_the_teacher_and_trains(flags, tmp_path):
    out = tmp_path / "out"
    assert main(flags(beam_size=2, ffn_size=48)) == 0
    student, origin = load_checkpoint(out / "student"), read_bundle(DEMO)
    assert (student.config.encoder_layers, student.config.decoder_layers, student.config.ffn_size) == (3, 1, 48)
    assert student.languages == origin.languages
    for name in ("encoder.layers.1.self_attention.q_proj.weight", "decoder.layers.0.cross_attention.out_proj.weight"):
        assert torch.equal(student.state_dict[name], origin.state_dict[name])
    assert (out / "student" / "source.spm").read_bytes() == (DEMO / "source.spm").read_bytes()
    settings = tomllib.loads((out / "student.toml").read_text(encoding="utf-8"))
    assert settings["train"] == str(out / "train.tsv")
    (tmp_path / "valid.tsv").write_text(f"{SOURCES[0]}\t{TARGETS[0]}\n", encoding="utf-8")
    training = ["--max-steps=1", "--valid-every=1", "--threads=1", "--device=cpu", "--precision=fp32"]
    files = [f"--config={out / 'student.toml'}", f"--valid={tmp_path / 'valid.tsv'}", f"--output={tmp_path / 'run'}"]
    assert main(["train", *files, *training]) == 0
    assert load_checkpoint(tmp_path / "run" / "best").config == student.config


@pytest.mark.slow
def test_a_student_of_another_width_starts_at_random_with_the_same_pieces(flags, tmp_path):
    assert main(flags(beam_size=1, d_model=16)) == 0
    first = load_checkpoint(tmp_path / "out" / "student")
    assert (first.config.d_model, first.config.head_dim) == (16, 4)
    assert main(flags("again", beam_size=1, d_model=16)) == 0
    again = load_checkpoint(tmp_path / "again" / "student")
    assert all(torch.equal(again.state_dict[name], weight) for name, weight in first.state_dict.items())


@pytest.mark.slow
def test_an_interrupted_run_goes_on_to_the_same_files(flags, tmp_path, text):
    """What translates ends with the command, and the next one goes on from its answers."""
    text.write_text("".join(f"{a}{b}\t-\n" for a in SOURCES for b in SOURCES), encoding="utf-8")
    slow = {"max_batch_size": 4, "max_length": 48}
    assert main(flags("whole", **slow)) == 0
    with subprocess.Popen(
        [sys.executable, "-m", "translane", *flags("broken", **slow)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr
        while b"to translate" not in (line := process.stderr.readline()):
            assert line
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read().decode()
    assert process.returncode == 130
    assert rest.endswith("translane distill: interrupted; --resume goes on from the last translations\n")
    assert not (tmp_path / "broken" / "train.tsv").exists()
    assert main(flags("broken", **slow)) == 1
    assert main(flags("broken", **slow, resume=True)) == 0
    for name in ("translated/sources.jsonl", "train.tsv"):
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert len(_records(tmp_path / "broken")) == len({a + b for a in SOURCES for b in SOURCES})


def test_a_run_that_is_done_writes_its_text_anew_with_other_filters(flags, tmp_path):
    assert main(flags(beam_size=1)) == 0
    outputs, every = _records(tmp_path / "out"), _pairs(tmp_path / "out")
    assert main(flags(beam_size=1, resume=True, max_ratio=1.1, with_references=True)) == 0
    fewer = _pairs(tmp_path / "out")
    assert _records(tmp_path / "out") == outputs
    taught = fewer[: len(fewer) - 3 * len(SOURCES)]
    assert 0 < len(taught) < len(every)
    assert all(pair in every for pair in taught)
    assert fewer[-1] == [SOURCES[-1], TARGETS[-1] * 3]


@pytest.mark.slow
def test_the_closest_of_several_translations_is_taken(flags, tmp_path):
    assert main(flags("first", nbest=4)) == 0
    outputs = [record["translation"] for record in _records(tmp_path / "first")]
    wanted = tmp_path / "wanted.tsv"  # whose targets are the last of each source's translations
    wanted.write_text(
        "".join(f"{source}\t{texts[-1]}\n" for source, texts in zip(SOURCES, outputs, strict=True)), encoding="utf-8"
    )
    assert main(flags("second", nbest=4, train=wanted)) == 0
    assert [target for _, target in _pairs(tmp_path / "second")] == [texts[-1] for texts in outputs]


def test_sources_alone_are_enough(flags, tmp_path):
    alone = tmp_path / "alone.txt.gz"
    alone.write_bytes(gzip.compress("".join(f"{source}\n" for source in SOURCES).encode()))
    assert main(flags(train=alone, beam_size=1)) == 0
    assert main(flags("refused", train=alone, with_references=True)) == 1


def test_sources_that_the_teacher_cannot_take_are_counted(flags, tmp_path, text, capfd):
    text.write_text(f"{'好' * 30}\n{'长' * 5000}\n\u200b\n{SOURCES[0]}\n\tx\n", encoding="utf-8")
    assert main(flags(beam_size=1, bad_lines="skip")) == 0
    out, err = capfd.readouterr()
    assert "4 different sources; 1 bad lines skipped" in err
    assert "2 source too long" in out
    assert len(_records(tmp_path / "out")) == 4


@pytest.mark.slow
def test_a_hugging_face_folder_teaches(flags, tmp_path, text, capfd):
    """Its vocabularies are of another kind, so the student has its own."""
    text.write_text("".join(f"{line}\n" for line in corpus()[:40] if 10 < len(line) < 60), encoding="utf-8")
    folder = shutil.copytree(hugging_face_folder(FOREIGN_MODELS["BART"]), tmp_path / "bart")
    assert main(flags(teacher=folder, beam_size=1, max_length=100)) == 0
    assert "has vocabularies of its own" in capfd.readouterr().out
    assert _pairs(tmp_path / "out")
    settings = tomllib.loads((tmp_path / "out" / "student.toml").read_text(encoding="utf-8"))
    assert "init" not in settings
    assert settings["decoder_layers"] == 1
    TrainSettings(**settings, valid=text, output=tmp_path / "run")  # what the command says to do next
    assert (tmp_path / "out" / "teacher" / "manifest.json").exists()
    assert main(flags(teacher=folder, beam_size=1, max_length=100, resume=True)) == 0
    (folder / "README.md").write_text("another teacher")
    assert main(flags(teacher=folder, beam_size=1, max_length=100, resume=True)) == 1
    assert "teacher: comes from another teacher; another --output starts anew" in capfd.readouterr().err


def test_a_bundle_for_gpus_alone_is_refused(flags, tmp_path, capfd):
    other = shutil.copytree(DEMO, tmp_path / "other")
    manifest = json.loads((other / "manifest.json").read_text(encoding="utf-8"))
    (other / "manifest.json").write_text(json.dumps({**manifest, "precision": "bf16", "weight_storage": "bfloat16"}))
    assert main(flags(teacher=other)) == 1
    assert "bf16" in capfd.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("overrides", "content", "sentence"),
    [
        ({"train": "none.tsv"}, None, "none.tsv: the file is missing"),
        ({"teacher": "none"}, None, "checkpoint none: there is no such folder"),
        ({}, b"\xff\xfe\n", "text.tsv:1: invalid UTF-8 at byte 1"),
        ({}, b"", "text.tsv: no usable line"),
        ({}, "\u200b\n".encode(), "text.tsv: no translation is left to learn from"),
        ({"source_column": 3}, b"a\tb\n", "text.tsv:1: 2 columns, at least 4 needed"),
        ({"with_references": True}, b"a\t\n", "the target side (column 1) is empty"),
        ({"output": "/dev/null/out"}, None, "/dev/null/out"),
        ({"d_model": 33}, None, "the student: "),
        ({"target_language": "fr"}, None, "--target-language: 'fr' is not a language of the model"),
    ],
)
def test_failures_are_one_sentence(flags, text, capfd, overrides, content, sentence):
    if content is not None:
        text.write_bytes(content)
    assert main(flags(**overrides)) in (1, 2)
    last = capfd.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("translane distill: ")
    assert sentence in last


@pytest.mark.slow
def test_translations_are_neither_overwritten_nor_mixed(flags, tmp_path, text, capfd):
    assert main(flags(beam_size=1)) == 0
    good = _records(tmp_path / "out")
    for overrides, sentence in (
        ({}, "holds a run already; --resume goes on with it"),
        ({"beam_size": 2, "resume": True}, "cannot be resumed with other settings (beam_size was 1, is 2)"),
        ({"max_length": 3, "resume": True}, "comes from another text, teacher or --max-length"),
    ):
        assert main(flags(**{"beam_size": 1, **overrides})) == 1
        assert sentence in capfd.readouterr().err
    text.write_text("你好！\n我有一只猫。\n", encoding="utf-8")
    assert main(flags(beam_size=1, resume=True)) == 1
    assert "comes from another text" in capfd.readouterr().err
    assert _records(tmp_path / "out") == good
