"""Runs without a model."""

from typing import Any

import pytest
from unit.batch.fake_workers import FakeWorkers, settings_of

from translane_batch.run import run


@pytest.fixture
def workers(monkeypatch):
    """The workers of all runs."""
    fake = FakeWorkers()
    monkeypatch.setattr("translane_batch.run.local_workers", fake)
    monkeypatch.setattr("translane_batch.local_model.identity_of_folder", lambda folder: f"model of {folder}")
    return fake


@pytest.fixture
def settings(tmp_path):
    """Settings of a run from the folder `in` to the folder `out`."""

    here: dict[str, Any] = {"corpus": tmp_path / "in", "output": tmp_path / "out", "model": "zh-en"}
    return lambda **changes: settings_of(**(here | changes))


@pytest.fixture
def go(workers, settings):
    """Runs, with changes of the settings."""
    return lambda **changes: run(settings(**changes), lambda _line: None)
