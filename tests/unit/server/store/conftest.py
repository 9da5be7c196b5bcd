import pytest


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(autouse=True)
def _no_disk(monkeypatch):
    # a power failure cannot be tested here, and waiting for the disk takes most of the time
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
