"""What a run tells: its lines, its history and its event files. All clocks are made up."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from helpers.commands import train as main
from helpers.refusals import refusal
from translane_export.core.checkpoint import load_tensors
from translane_export.train.errors import TrainError
from translane_export.train.evaluate import Evaluation
from translane_export.train.log import Log, read_history
from translane_export.train.settings import ENV_PREFIX, TrainSettings
from translane_export.train.state import RunState, TimeLimit
from translane_export.train.update import Update
from translane_server.core.errors import SettingsError
from translane_server.settings.loader import load_settings

SETTINGS = {"train": "a", "valid": "b", "output": "c", "source_language": "zh", "target_language": "en"}
RECORD = {"kind": "step", "step": 5, "epoch": 1, "seconds": 3.0, "loss": 2.0, "learning_rate": 1e-3}
RECORD |= {"tokens_per_second": 10.0}


class Run:
    """A run that does nothing but take time: five steps, one a second, of ten tokens each."""

    def __init__(self, folder: Path, *, step: int = 0, seconds: float = 0.0, limit: float = 0.0, **settings: Any):
        self.now, self.state = 100.0, RunState(step=step)
        self.time = TimeLimit(limit, lambda: self.now)
        self.time.resume(seconds)
        self.settings = TrainSettings.model_validate({**SETTINGS, "log_every": 5, **settings})
        self.log = Log(self.settings, folder, self.state, self.time)

    def go(self, *losses: float, tokens: int = 10, seconds: float = 1.0) -> None:
        for loss in losses:
            self.now += seconds
            self.state.step += 1
            self.log.update(Update(loss, tokens, self.state.step / 1000))

    def validate(self, bleu: float) -> None:
        self.log.end_window()
        self.state.best_bleu, self.state.best_step = bleu, self.state.step
        self.now += 3
        self.log.validation(Evaluation(bleu, 2 * bleu, "", "", ()))
        self.log.begin_window()


def events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    read = EventAccumulator(str(folder / "tensorboard"))
    read.Reload()
    return {tag: [(event.step, event.value) for event in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


def test_history_and_event_files_have_each_step_once(tmp_path, capfd):
    """Also those of a run that was killed and resumed after its validation at step 7."""
    killed = Run(tmp_path, tensorboard=True)
    killed.go(4, 3, 2, 1, 5)
    assert read_history(tmp_path / "history.jsonl") == [  # at once
        {**RECORD, "seconds": 5.0, "loss": 3.0, "learning_rate": 5e-3}
    ]
    killed.go(1, 2)
    killed.validate(12.5)
    assert "step 7, epoch 1, 0.0 min: valid BLEU 12.50, chrF 25.00 (best 12.50 at step 7)\n" in capfd.readouterr().err
    killed.go(9, 9, 9, 9)
    killed.log.close()
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    kinds = [("step", 5), ("step", 7), ("validation", 7), ("step", 10)]
    assert [(line["kind"], line["step"]) for line in lines] == kinds
    (first,) = (tmp_path / "tensorboard").iterdir()
    first.rename(first.with_name("events.out.tfevents.1.first"))  # names have the second in which files were made

    resumed = Run(tmp_path, step=7, seconds=10, tensorboard=True)
    last = resumed.log.last_validation()
    assert last
    assert [last[name] for name in ("bleu", "chrf", "best_bleu", "best_step")] == [12.5, 25.0, 12.5, 7]
    resumed.go(6, 4, 5)
    assert resumed.log.last_validation() is None
    resumed.log.close()
    history = read_history(tmp_path / "history.jsonl")
    assert [record["step"] for record in history] == [5, 7, 7, 10]
    assert [record["loss"] for record in history if record["kind"] == "step"] == [3.0, 1.5, 5.0]
    assert events(tmp_path) == {
        "train/loss": [(5, 3.0), (7, 1.5), (10, 5.0)],
        "train/learning_rate": [(5, pytest.approx(5e-3)), (7, pytest.approx(7e-3)), (10, pytest.approx(1e-2))],
        "train/tokens_per_second": [(5, 10.0), (7, 10.0), (10, 10.0)],
        "validation/bleu": [(7, 12.5)],
        "validation/chrf": [(7, 25.0)],
    }


def test_the_nearest_limit_says_how_long_it_takes(tmp_path, capfd, monkeypatch):
    run = Run(tmp_path, step=5, seconds=90, limit=230)
    run.log.close()  # it has the machine's clock
    capfd.readouterr()
    monkeypatch.setattr("time.monotonic", lambda: run.now)
    run.log = Log(run.settings, tmp_path, run.state, run.time)
    run.go(4.0, seconds=20)
    run.log.expect(8)
    run.go(2.0, tokens=30, seconds=20)
    run.log.close()
    assert capfd.readouterr().err == (
        "6 of 12 steps, 0 a second, 2:00 left, loss 4.000, 0 tokens/s\n"
        "7 of 8 steps, 0 a second, 0:20 left, loss 2.500, 1 tokens/s\n"
    )


def written(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize("lost", [1, 2, 30])
def test_half_a_last_line_is_left_out_and_cut_off(tmp_path, lost):
    path = written(tmp_path / "history.jsonl", RECORD, RECORD)
    path.write_bytes(path.read_bytes()[:-lost])
    assert read_history(path) == [RECORD]
    Run(tmp_path, step=10).log.close()
    assert path.read_bytes() == written(tmp_path / "other", RECORD).read_bytes()


BEST = '{"kind": "validation", "step": 1, "best_bleu": "1"}'


@pytest.mark.parametrize(
    "line", ["{", "[]", "[" * 100_000, "3", "\xff", '{"kind": "other"}', '{"step": 1}', BEST], ids="{:.20}".format
)
def test_what_is_no_record_is_refused_with_its_line(tmp_path, line):
    path = written(tmp_path / "history.jsonl", RECORD)
    with path.open("a", encoding="latin-1") as file:
        file.write(f"{line}\n")
    with pytest.raises(TrainError, match=re.escape(f"{path}:2: not a record of a training run")):
        read_history(path)


def test_what_is_no_history_is_one_sentence(tmp_path):
    with pytest.raises(TrainError, match=re.escape("none.jsonl: cannot be read (No such file")):
        read_history(tmp_path / "none.jsonl")
    os.mkfifo(tmp_path / "history.jsonl")
    with pytest.raises(TrainError, match=re.escape("history.jsonl: cannot be read (it is a named pipe")):
        Run(tmp_path)


def test_a_missing_extra_is_told_before_anything_is_done(run_flags, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("translane_export.train.run.find_spec", lambda _name: None)
    assert main([*run_flags(), "--tensorboard"]) == 2
    assert capfd.readouterr().err.startswith(
        "translane train: --tensorboard: tensorboard is not installed; pip install 'translane[tensorboard]'"
    )
    assert not (tmp_path / "run").exists()


def test_a_finished_run_is_resumed_without_training(run_flags, tmp_path, capfd):
    assert main(run_flags(max_steps=12, tensorboard=True)) == 0
    first = capfd.readouterr().out
    run = tmp_path / "run"
    assert set(events(run)) >= {"train/loss", "validation/bleu"}
    history, state = (run / "history.jsonl").read_bytes(), load_tensors(run / "resume.safetensors").tensors
    assert main(run_flags(max_steps=12, resume=True)) == 0
    assert capfd.readouterr().out == first
    assert (run / "history.jsonl").read_bytes() == history
    later = load_tensors(run / "resume.safetensors").tensors
    assert later.keys() == state.keys()
    assert all(torch.equal(later[name], tensor) for name, tensor in state.items())


NEEDED = ["--train=a.tsv", "--valid=b.tsv", "--output=run", "--source-language=zh-Hans", "--target-language=en"]


def _load(argv: list[str]) -> TrainSettings:
    return load_settings(TrainSettings, argv, {}, prog="translane train", env_prefix=ENV_PREFIX)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--train=a.tsv"], "--valid and --output must be given"),
        (NEEDED[:3], "--source-language: must be given as a BCP-47 tag"),
        (NEEDED[:4], "--target-language: must be given as a BCP-47 tag"),
        ([*NEEDED, "--target-language=e n"], "--target-language: must be given as a BCP-47 tag"),
        (["--evaluate=run/best"], "--test must be given"),
        ([*NEEDED, "--source-normalization=nfc"], "--source-normalization: 'nfc' is not one of nmt_nfkc, "),
        ([*NEEDED, "--vocabulary=word", "--sampling-alpha=0.1"], "--sampling-alpha: a word vocabulary knows one seg"),
        ([*NEEDED, "--tie-embeddings=three-way"], "--tie-embeddings three-way: needs --joint-vocabulary"),
        ([*NEEDED, "--joint-vocabulary", "--source-normalization=nfkc"], "both sides need the same normalization"),
        ([*NEEDED, "--cooldown-steps=9", "--max-steps=8"], "--cooldown-steps: the cool-down must fit into --max-steps"),
        ([*NEEDED, "--heads=7"], "--d-model: 256 is not divisible by 7 heads; set --head-size"),
        ([*NEEDED, "--unknown=1"], "--unknown"),
        ([*NEEDED, f"--seed={2**32}"], "--seed: input should be less than 4294967296"),
        ([*NEEDED, "--max-minutes=inf"], "--max-minutes: input should be a finite number, not 'inf'"),
        ([*NEEDED, "--max-positions=131072", "--d-model=2048"], "--max-positions: the tables of 131,072 sinusoidal"),
        ([*NEEDED, "--proximal-init", "--kv-heads=2"], "--proximal-init: keys cannot start as queries where --kv"),
        ([*NEEDED, "--relative-window=1000", "--heads=256"], "--relative-window: 256 heads with 2,001 distances each"),
        ([*NEEDED, "--output-translations=a"], "--output-translations: needs --evaluate"),
        ([*NEEDED, "--look-forward=2"], "--look-forward: has no effect without --window-size"),
        ([*NEEDED, "--exact-window", "--block-length=3"], "--exact-window: has no effect without --window-size"),
        ([*NEEDED, "--rotary-interleaved", "--positions=alibi"], "--rotary-interleaved: has no effect without --pos"),
    ],
)
def test_wrong_settings_are_refused_in_one_sentence(argv, sentence):
    assert sentence in refusal(SettingsError, _load, argv)
