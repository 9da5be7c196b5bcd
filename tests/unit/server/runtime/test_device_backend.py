"""The device of the sessions decides which backend there is."""

from types import SimpleNamespace
from typing import Any

import pytest

from translane_server.runtime import device_backend as module
from translane_server.runtime.device_backend import device_backend

SIZES: dict[str, Any] = {"rows": 3, "source_capacity": 5, "target_capacity": 7, "encode_tokens": 11}


@pytest.mark.parametrize(("cuda", "expected"), [(None, "OrtBackend"), (object(), "CudaBackend")])
def test_each_device_has_its_backend_of_the_sizes_asked_for(cuda, expected, monkeypatch):
    opened = []
    for name in ("OrtBackend", "CudaBackend"):
        monkeypatch.setattr(module, name, lambda sessions, name=name, **sizes: opened.append((name, sessions, sizes)))
    sessions: Any = SimpleNamespace(cuda=cuda)
    device_backend(sessions, **SIZES)
    more = {} if cuda else {"all_threads": None}
    assert opened == [(expected, sessions, SIZES | more)]
