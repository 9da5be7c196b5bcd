"""Models of runs that are at URLs."""

import hashlib
import json

import pytest

from helpers.file_server import FileServer
from helpers.tiny_bundle import TINY
from translane_batch import local_model, run
from translane_batch.local_model import identity_of_folder, server_settings, with_model_here
from translane_batch.settings import BatchError
from translane_server.settings.model_sources import RemotePlace

MANIFEST = "zh-en/manifest.json"


@pytest.fixture(autouse=True)
def _no_disk(monkeypatch):
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture
def store():
    with FileServer() as server:
        server.put(TINY, "zh-en")
        yield server


@pytest.fixture
def remote(store, settings, tmp_path):
    """Settings of a run whose model is in the store."""
    return lambda end="", **changes: settings(
        model=f"{store.url}/zh-en{end}", model_cache=tmp_path / "cache", **changes
    )


def digest_of(store: FileServer) -> str:
    return hashlib.sha256(store.files[MANIFEST]).hexdigest()


def publish(store: FileServer, version: str) -> None:
    store.files[MANIFEST] = json.dumps(json.loads(store.files[MANIFEST]) | {"version": version}).encode()


def test_workers_get_the_version_that_was_downloaded(store, remote):
    lines: list[str] = []
    digest = digest_of(store)
    pinned, folder = with_model_here(remote(), lines.append)
    assert lines == [f"the model is at {store.url}/zh-en", f"the model is @sha256:{digest}"]
    assert pinned.model == f"{store.url}/zh-en@sha256:{digest}"
    assert folder.name == digest
    assert identity_of_folder(folder) == identity_of_folder(TINY)
    publish(store, "9")
    (place,) = server_settings(pinned).model or ()
    assert isinstance(place, RemotePlace)
    assert place.url.digest == digest
    store.asked.clear()
    assert with_model_here(pinned, lines.append) == (pinned, folder)
    assert store.asked == []


def test_a_url_keeps_its_secrets_and_shows_none(store, remote):
    lines: list[str] = []
    pinned, _ = with_model_here(remote("/?sig=secret"), lines.append)
    assert pinned.model == f"{store.url}/zh-en/?sig=secret@sha256:{digest_of(store)}"
    assert "secret" not in " ".join(lines)


def test_a_run_goes_on_with_its_own_version_alone(store, remote, workers, tmp_path, monkeypatch):
    monkeypatch.setattr(local_model, "identity_of_folder", identity_of_folder)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a\n", encoding="utf-8")
    workers.most = 0
    with pytest.raises(InterruptedError):
        run.run(remote(), lambda _line: None)
    workers.most = 1
    first = digest_of(store)
    publish(store, "9")
    with pytest.raises(BatchError):
        run.run(remote(), lambda _line: None)
    assert run.run(remote(f"@sha256:{first}"), lambda _line: None).translated == 1
