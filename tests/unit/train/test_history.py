import json
import os
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from translane_export.train.errors import TrainError
from translane_export.train.history import History, Record, StepRecord, ValidationRecord, read_history


def step(number: int) -> StepRecord:
    return StepRecord(step=number, epoch=1, seconds=0.5, loss=3.25, learning_rate=1e-3, tokens_per_second=1000.0)


def validation(number: int) -> ValidationRecord:
    return ValidationRecord(step=number, epoch=1, seconds=0.5, bleu=12.5, chrf=20.0, best_bleu=12.5, best_step=number)


def written(path: Path, *records: Record) -> Path:
    history = History(path)
    for record in records:
        history.add(record)
    history.close()
    return path


def test_records_are_objects_a_line_and_in_the_file_at_once(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    history.add(step(5))
    history.add(validation(10))
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert lines == [{"kind": "step", **asdict(step(5))}, {"kind": "validation", **asdict(validation(10))}]
    history.close()
    assert read_history(tmp_path / "history.jsonl") == [step(5), validation(10)] == history.records


def test_a_resumed_history_has_no_step_twice(tmp_path: Path) -> None:
    path = written(tmp_path / "history.jsonl", step(5), step(10), validation(10), step(15), step(20))
    history = History(path, last_step=10)
    history.add(step(15))
    history.close()
    assert read_history(path) == [step(5), step(10), validation(10), step(15)]


@pytest.mark.parametrize("lost", [1, 2, 30])
def test_half_a_last_line_is_left_out_and_cut_off(tmp_path: Path, lost: int) -> None:
    path = written(tmp_path / "history.jsonl", step(5), step(10))
    path.write_bytes(path.read_bytes()[:-lost])
    assert read_history(path) == [step(5)]
    history = History(path, last_step=10)
    history.add(step(10))
    history.close()
    assert read_history(path) == [step(5), step(10)]


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "[" * 100_000,
        "3",
        "\xff",
        '{"kind": "other"}',
        '{"kind": "step", "step": 1}',
        '{"step": 1}',
        json.dumps({"kind": "step", **asdict(step(1)), "loss": "x"}),
        json.dumps({"kind": "step", **asdict(step(1)), "loss": float("nan")}),
        json.dumps({"kind": "step", **asdict(step(1)), "more": 1}),
    ],
)
def test_what_is_no_record_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    path = written(tmp_path / "history.jsonl", step(5))
    with path.open("a", encoding="latin-1") as file:
        file.write(f"{line}\n")
    with pytest.raises(TrainError, match=re.escape(f"{path}:2: not a record of a training run")):
        read_history(path)


def test_a_missing_history_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TrainError, match=re.escape("none.jsonl: cannot be read (No such file")):
        read_history(tmp_path / "none.jsonl")


def test_a_pipe_in_place_of_a_history_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "history.jsonl")
    with pytest.raises(TrainError, match=re.escape("history.jsonl: cannot be read (it is a named pipe")):
        History(tmp_path / "history.jsonl")
