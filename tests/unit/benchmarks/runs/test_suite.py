"""What `make bench` runs, and how a part ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from benchmarks import places
from benchmarks.runs import suite


@pytest.mark.slow  # each program imports what it measures
def test_every_part_is_a_program_that_takes_its_arguments():
    sentences, bundles = Path("mine.tsv.gz"), {"demo-int8": places.DEMO}
    parts = [part for length in suite.PARTS for part in suite.parts(length, "cpu", sentences, bundles, vnni=True)]
    parts += suite.parts("full", "cuda", sentences, {})
    for words in {part.arguments if part.run else ("python", "-m", part.module, *part.arguments) for part in parts}:
        done = subprocess.run([sys.executable, *words[1:], "--help"], cwd=places.ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_the_suite_ends_in_time(monkeypatch):
    given = []
    monkeypatch.setattr(suite, "run", lambda part, _environment: given.append(part.minutes) or 0)
    minutes = iter((0, 0, 30, 30, 58, 58, 60, 60))
    parts = [suite.Part(name, (), 40) for name in ("first", "second", "third", "fourth")]
    codes = suite.run_all(parts, {}, 60, clock=lambda: 60.0 * next(minutes))
    assert given == [40, 30, 2]
    assert list(codes.values()) == [0, 0, 0, suite.ENDED]


@pytest.mark.parametrize(
    ("program", "code"), [("import time; time.sleep(600)", suite.ENDED), ("raise SystemExit(3)", 3)]
)
def test_a_part_is_ended_at_its_limit_and_its_exit_code_is_told(program, code, tmp_path, monkeypatch):
    monkeypatch.setattr(places, "ROOT", tmp_path)
    folder = tmp_path / "benchmarks" / "runs"
    folder.mkdir(parents=True)
    (folder / "part.py").write_text(program)
    assert suite.run(suite.Part("part", (), minutes=5 / 60), dict(os.environ)) == code


def test_what_a_part_has_started_ends_with_it():
    program = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        suite.end(process)
    assert process.returncode is not None
    _, alive = psutil.wait_procs([child], timeout=30)
    assert alive == []
