"""The picture and the event files of a history. The packages are extras, and belong to what the tests install."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from helpers.commands import train as main
from translane_export.checkpoint import load_tensors
from translane_export.train import extras
from translane_export.train.event_files import EventFiles
from translane_export.train.history import Record, StepRecord, ValidationRecord
from translane_export.train.plot import draw_history

RECORDS: list[Record] = [
    StepRecord(step=5, epoch=1, seconds=1.0, loss=3.0, learning_rate=1e-3, tokens_per_second=900.0),
    StepRecord(step=10, epoch=1, seconds=2.0, loss=2.0, learning_rate=2e-3, tokens_per_second=950.0),
    ValidationRecord(step=10, epoch=1, seconds=3.0, bleu=12.5, chrf=25.0, best_bleu=12.5, best_step=10),
]


def png_size(path: Path) -> tuple[int, int]:
    start = path.read_bytes()[:24]
    assert start.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", start[16:])
    return width, height


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_history_of_any_length_is_drawn(tmp_path: Path, count: int) -> None:
    draw_history(RECORDS[:count], tmp_path / "history.png")
    width, height = png_size(tmp_path / "history.png")
    assert min(width, height) > 500
    assert [path.name for path in tmp_path.iterdir()] == ["history.png"]


def events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    read = EventAccumulator(str(folder))
    read.Reload()
    return {tag: [(event.step, event.value) for event in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


def test_event_files_are_read_back(tmp_path: Path) -> None:
    files = EventFiles(tmp_path)
    for record in RECORDS:
        files.add(record)
    files.close()
    found = events(tmp_path)
    assert found == {
        "train/loss": [(5, 3.0), (10, 2.0)],
        "train/learning_rate": [(5, pytest.approx(1e-3)), (10, pytest.approx(2e-3))],
        "train/tokens_per_second": [(5, 900.0), (10, 950.0)],
        "validation/bleu": [(10, 12.5)],
        "validation/chrf": [(10, 25.0)],
    }


def test_event_files_of_a_resumed_run_have_no_step_twice(tmp_path: Path) -> None:
    killed = EventFiles(tmp_path)
    for record in RECORDS:
        killed.add(record)
    killed.close()
    # the names of the files have the second in which they were made
    (first,) = tmp_path.iterdir()
    first.rename(first.with_name("events.out.tfevents.1.first"))
    resumed = EventFiles(tmp_path, last_step=5)
    resumed.add(RECORDS[1])
    resumed.close()
    assert events(tmp_path)["train/loss"] == [(5, 3.0), (10, 2.0)]


@pytest.mark.parametrize(
    ("flag", "sentence"),
    [
        ("--plot", "--plot: matplotlib is not installed; pip install 'translane[plot]' installs it"),
        ("--tensorboard", "--tensorboard: tensorboard is not installed; pip install 'translane[tensorboard]'"),
    ],
)
def test_a_missing_extra_is_told_before_anything_is_done(
    run_flags: Callable[..., list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    flag: str,
    sentence: str,
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _name: None)
    assert main([*run_flags(), flag]) == 2
    assert capfd.readouterr().err.startswith(f"translane train: {sentence}")
    assert not (tmp_path / "run").exists()


def test_a_run_draws_and_a_finished_one_is_drawn_without_training(
    run_flags: Callable[..., list[str]], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(run_flags(max_steps=12, tensorboard=True)) == 0
    first = capfd.readouterr().out
    run = tmp_path / "run"
    assert set(events(run / "tensorboard")) >= {"train/loss", "validation/bleu"}
    assert not (run / "history.png").exists()
    history, state = (run / "history.jsonl").read_bytes(), load_tensors(run / "resume.safetensors").tensors
    assert main(run_flags(max_steps=12, resume=True, plot=True)) == 0
    assert capfd.readouterr().out == first
    assert png_size(run / "history.png")[0] > 500
    assert (run / "history.jsonl").read_bytes() == history
    later = load_tensors(run / "resume.safetensors").tensors
    assert later.keys() == state.keys()
    assert all(torch.equal(later[name], tensor) for name, tensor in state.items())
