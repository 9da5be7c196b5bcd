"""Which replicas are at work, and the threads that a lone one has."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.backend import VOCABULARY
from helpers.demo import DEMO
from translane_server.bundle.bundle import load_bundle
from translane_server.workers.__main__ import _all_threads
from translane_server.workers.messages import ModelSetup, WorkerSetup
from translane_server.workers.worker_process import Activity


def test_a_replica_is_alone_while_no_other_one_is_at_work():
    shared = Activity(0)
    one, other = shared.of(0), shared.of(1023)
    assert one.is_alone()
    one.set(True)
    assert one.is_alone()
    assert not other.is_alone()
    other.set(True)
    assert not one.is_alone()
    one.set(False)
    assert other.is_alone()
    assert not one.is_alone()


# In a process of its own: a fork of the one that runs the tests would go on with them if its end failed.
FORKS = """
import os
from translane_server.workers.worker_process import Activity

shared = Activity(0)
if child := os.fork():
    os.waitpid(child, 0)
    print(shared.of(0).is_alone(), shared.of(1).is_alone())
else:
    shared.of(1).set(True)
"""


def test_processes_that_are_forked_share_it():
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False True\n"


# The graphs that the first replica loads once more, to run them on all threads while it is alone.


def setup_of(folder: Path, lone_threads: int) -> WorkerSetup:
    model = ModelSetup(load_bundle(folder), "cpu", 1, 32, 32)
    return WorkerSetup(0, 4, VOCABULARY, model, lone_threads)


def test_they_run_while_no_other_replica_is_at_work():
    shared = Activity(0)
    found = _all_threads(setup_of(DEMO, 2), shared.of(0))
    assert found
    assert found.sessions.threads == 2
    assert found.are_free()
    shared.of(1).set(True)
    assert not found.are_free()


def test_a_replica_of_one_thread_has_none():
    assert _all_threads(setup_of(DEMO, 1), Activity(0)) is None


@pytest.mark.parametrize("gone", ["decoder.onnx", "weights.bin"])
def test_a_replica_starts_without_them_where_the_folder_has_changed(tmp_path, gone, caplog):
    folder = shutil.copytree(DEMO, tmp_path / "bundle")
    setup = setup_of(folder, 2)
    (folder / gone).unlink()
    assert _all_threads(setup, Activity(0)) is None
    assert "replica 0 runs on one thread, also while it is alone: model bundle" in caplog.text
