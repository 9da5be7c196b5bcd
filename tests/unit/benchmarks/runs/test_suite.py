"""What `make bench` runs, and how a part ends."""

from __future__ import annotations

import gzip
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from benchmarks import places
from benchmarks.machine import Usage
from benchmarks.measuring import suite_parts
from benchmarks.models.workload import read_pairs
from benchmarks.runs import suite
from translane_server.bundle import load_bundle

BUNDLES = {"demo-fp32": Path("some-bundle")}


SOURCES = places.SENTENCES


def scripts(length, device, **found):
    return [part.name for part in suite_parts.parts(length, device, SOURCES, BUNDLES, **found)]


@pytest.mark.parametrize("length", suite_parts.LENGTHS)
def test_every_length_runs_all_that_a_device_has(length):
    left_out = {"front-ends"} if length == "quick" else set()
    always = set(suite_parts.NAMES_OF_PARTS) - {"students", "without_vnni"}
    assert set(scripts(length, "cpu")) == always - left_out
    everything = set(scripts(length, "cpu", student=Path("student"), vnni=True))
    assert everything == set(suite_parts.NAMES_OF_PARTS) - left_out
    assert sorted(scripts(length, "cuda")) == ["offline", "scaling", "steps"]
    for device in ("cpu", "cuda"):
        for part in suite_parts.parts(length, device, places.SENTENCES, BUNDLES):
            assert importlib.util.find_spec(part.module)
            assert ("--device" in part.arguments) == (device == "cuda")


def test_the_suite_ends_in_time(monkeypatch):
    given = []
    monkeypatch.setattr(suite, "run", lambda part, _environment: given.append(part.minutes) or 0)
    minutes = iter((0, 0, 30, 30, 58, 58, 60, 60))
    parts = [suite_parts.Part(name, name, (), 40) for name in ("first", "second", "third", "fourth")]
    codes = suite.run_all(parts, {}, 60, clock=lambda: 60.0 * next(minutes))
    assert given == [40, 30, 2]
    assert list(codes.values()) == [0, 0, 0, suite.ENDED]


def test_without_vnni_the_offline_benchmark_runs_in_its_place(tmp_path):
    (hidden,) = (
        part for part in suite_parts.parts("usual", "cpu", tmp_path, {}, vnni=True) if part.name == "without_vnni"
    )
    assert hidden.arguments[:3] == ("python", "-m", "benchmarks.runs.offline")
    assert hidden.arguments[-2:] == ("-o", str(places.result("without_vnni")))
    assert str(tmp_path) in hidden.arguments


def test_other_sentences_are_passed_on():
    parts = list(suite_parts.parts("quick", "cpu", Path("mine.tsv.gz"), {}))
    assert [part.name for part in parts if "mine.tsv.gz" in part.arguments] == ["offline", "serving"]


def test_a_run_begins_its_files_anew_and_leaves_others(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "RESULTS", tmp_path)
    for name in ("offline", "offline-mine", "products-demo-fp32", "steps-demo-fp32", "soak"):
        (tmp_path / f"{name}.json").touch()
    suite.remove({"offline", "products", "serving"}, "cpu")
    assert {path.stem for path in tmp_path.iterdir()} == {"offline-mine", "steps-demo-fp32", "soak"}


def test_there_are_sentences_without_the_test_set(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "SENTENCES", tmp_path / "away.tsv.gz")
    path = suite.sentences_of(None, tmp_path)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        assert all(len(line.split("\t")) == 2 for line in file)
    if (places.DEMO / "manifest.json").exists():
        assert all(pair.source and pair.reference_length for pair in read_pairs(path, load_bundle(places.DEMO)))
    assert suite.sentences_of(Path("mine"), tmp_path) == Path("mine")


def test_a_part_is_ended_at_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "ROOT", tmp_path)
    (tmp_path / "endless.py").write_text("import time\ntime.sleep(600)\n")
    assert suite.run(suite_parts.Part("endless", "endless", (), minutes=0.1 / 60), dict(os.environ)) == suite.ENDED


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


def test_the_exit_code_of_a_part_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "ROOT", tmp_path)
    (tmp_path / "failing.py").write_text("import sys\nsys.exit(3)\n")
    assert suite.run(suite_parts.Part("failing", "failing", (), minutes=1), dict(os.environ)) == 3


def test_a_share_of_the_processors_is_one():
    used = Usage().so_far()
    assert 0 <= used["others"] <= 1
    assert {"load_start", "load_end", "seconds"} <= set(used)
