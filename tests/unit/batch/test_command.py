"""The command of batch: exit codes, settings, and sentences for all that goes wrong."""

import io
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import pytest

from helpers.commands import batch
from translane.errors import Unavailable
from translane_batch.settings import BatchError


@pytest.fixture
def argv(tmp_path):
    (tmp_path / "in.txt").write_text("a\nb\n\na\nbad\n", encoding="utf-8")
    return [str(tmp_path / "in.txt"), "-o", str(tmp_path / "out"), "--model", "zh-en"]


def test_a_run_says_what_it_has_done(argv, tmp_path, workers, capsys):
    assert batch([*argv, "--summary", str(tmp_path / "figures.json")], {}) == 0
    out, err = capsys.readouterr()
    assert (tmp_path / "out" / "in.txt").read_text(encoding="utf-8") == "[a]\n[b]\n\n[a]\n\n"
    assert out == (
        f"{tmp_path / 'out'}: 5 records in 1 file: 3 translated, 1 blank, 1 left out (refused 1);"
        " 3 different sources, 25.0% duplicates\n"
    )
    assert "translane batch: 4 texts, 3 different sources (25.0% duplicates), 3 to translate\n" in err
    figures = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert (figures["records"], figures["left_out"]) == (5, {"refused": 1})
    assert batch([*argv, "--summary", "-"], {}) == 0
    assert json.loads(capsys.readouterr().out) == figures
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as thread:  # a pipe or a device is written, and not replaced
        read = thread.submit((tmp_path / "pipe").read_text)
        assert batch([*argv, "--summary", str(tmp_path / "pipe")], {}) == 0
    assert json.loads(read.result()) == figures


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (BatchError("it is wrong"), 1, "it is wrong"),
        (BatchError("--beam-size: is 99", exit_code=2), 2, "--beam-size: is 99"),
        (Unavailable("cannot reach a:1"), 1, "cannot reach a:1; the same command goes on"),
        (OSError(28, "No space left on device", "f"), 1, "f: No space left on device; the same command goes on"),
        (
            MemoryError(),
            1,
            "there is not enough memory; lower --max-batch-size or --replicas, and the same command goes on",
        ),
        (KeyboardInterrupt(), 130, "interrupted; the same command goes on"),
        *(
            (ModuleNotFoundError(name=package), 1, f"{package} is not installed: pip install 'translane[{extra}]'")
            for package, extra in (
                ("onnxruntime", "server"),
                ("ray", "ray"),
                ("pydantic", "server,batch"),
                ("pyarrow", "batch"),
            )
        ),
    ],
)
def test_what_goes_wrong_is_one_sentence(error, code, sentence, argv, monkeypatch, capsys):
    monkeypatch.setattr("translane_batch.run.run", mock.Mock(side_effect=error))
    assert batch(argv, {}) == code
    err = capsys.readouterr().err
    assert err.startswith(f"translane batch: {sentence}")
    assert err.count("\n") == 1


def test_a_closed_terminal_ends_no_run(argv, tmp_path, workers, monkeypatch):
    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError(32, "Broken pipe")

    closed = io.StringIO()
    closed.close()
    for number, stderr in enumerate((Closed(), closed, None)):
        monkeypatch.setattr(sys, "stderr", stderr)
        assert batch([*argv, "-o", str(tmp_path / f"out{number}")], {}) == 0
        assert (tmp_path / f"out{number}" / "in.txt").exists()
        sys.stderr.close()  # which the command has opened where there was none


def test_names_need_not_be_unicode(tmp_path, workers, capsys):
    corpus = os.fsdecode(os.fsencode(tmp_path) + b"/in")
    name = os.fsdecode(b"\xff.txt")
    Path(corpus).mkdir()
    try:
        Path(corpus, name).write_text("a\n", encoding="utf-8")
    except OSError:
        pytest.skip("this file system has no such names")
    output = os.fsdecode(os.fsencode(tmp_path) + b"/\xfe")
    for _ in range(2):
        assert batch([corpus, "-o", output, "--model=m"], {}) == 0
        assert "/\\udcfe: 1 records in 1 file" in capsys.readouterr().out
    assert Path(output, name).read_text(encoding="utf-8") == "[a]\n"
