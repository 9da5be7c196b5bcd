"""What `make bench` runs, how a part ends, and the page that is written in the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from benchmarks import places
from benchmarks.report import page, results
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


def cell(ours, theirs, batch):
    rates = {name: {"rate": rate, "cpu_rate": rate} for name, rate in (("translane", ours), ("ctranslate2", theirs))}
    return {"model": "demo", "precision": "int8", "search": "greedy", "batch": batch} | rates


def test_the_page_has_what_was_measured_names_what_was_not_and_keeps_the_rest(tmp_path):
    machine = {"processor": "Some (avx2)", "cores": 2, "versions": {}, "load": 0.5, "time": "2026-01-01T00:00:00Z"}
    usage = {"seconds": 60.0, "load_start": 0.5, "load_end": 2.0, "others": 0.4}
    record = {"machine": machine, "usage": usage, "cells": [cell(150, 100, 1), cell(90, 100, 8)]}
    (tmp_path / "offline.json").write_text(json.dumps(record))
    (tmp_path / "growth.json").write_text("{")
    parts = [f"{page.BEGIN.format(part=part)}\nold\n{page.END.format(part=part)}\n" for part in ("vnni", "avx2", "cpu")]
    vnni, avx2, cpu = page.rewritten("before\n".join(parts), results.read(tmp_path), "cpu").split("before\n")
    assert vnni == parts[0]
    assert "| demo | int8 | greedy | 1.50 | **0.90** | – | – | – |" in avx2
    assert "faster in 1 of 2 offline comparisons; the median is 1.20." in avx2
    assert "| demo int8 greedy | 150 / 100, 1.50 (1.50) | 90 / 100, **0.90** (**0.90**) |" in cpu
    assert "| 2.0 | 1 of 2 | 0.90 | demo int8 greedy batch 8 |" in cpu
    assert "**The machine was in use**" in cpu
    assert "- growth.json is not JSON" in cpu
    assert "- Servers under load: `python -m benchmarks.runs.serving` has written nothing yet." in cpu
