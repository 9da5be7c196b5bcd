"""The graphs that the first replica loads once more, to run them on all threads while it is alone."""

import shutil
from pathlib import Path

import pytest

from fakes.backend import VOCABULARY
from helpers.demo import DEMO
from translane_server.bundle.bundle import load_bundle
from translane_server.workers.__main__ import _all_threads
from translane_server.workers.messages import ModelSetup, WorkerSetup
from translane_server.workers.worker_process import Activity


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
