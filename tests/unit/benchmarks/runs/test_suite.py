"""What `make bench` runs, and how a part ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
