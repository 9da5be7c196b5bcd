"""The device of the sessions decides which backend a replica has."""

from types import SimpleNamespace
from typing import Any

import pytest

from translane_server.workers.__main__ import _open

SIZES: dict[str, Any] = {"rows": 3, "source_capacity": 5, "target_capacity": 7}


@pytest.mark.parametrize(
    ("cuda", "expected"), [(None, "runtime.ort.OrtBackend"), (object(), "runtime.cuda.backend.CudaBackend")]
)
def test_each_device_has_its_backend_of_the_sizes_asked_for(cuda, expected, monkeypatch):
    opened = []

    def backend(sessions: Any, **sizes: Any) -> Any:
        return SimpleNamespace(warm_up=lambda: opened.append((sessions, sizes)))

    monkeypatch.setattr(f"translane_server.{expected}", backend)
    sessions: Any = SimpleNamespace(cuda=cuda)
    setup: Any = SimpleNamespace(rows=3, model=SimpleNamespace(source_capacity=5, target_capacity=7))
    _open(setup, sessions)
    assert opened == [(sessions, SIZES if cuda else SIZES | {"all_threads": None})]
