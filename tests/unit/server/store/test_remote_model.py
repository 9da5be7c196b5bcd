"""Where the bundles of URLs are kept by default."""

from pathlib import Path

import pytest

from translane_server.model_places import RemotePlace
from translane_server.model_urls import ModelUrl
from translane_server.settings import ServerSettings
from translane_server.store.remote_model import remote_models

DIGEST = "0" * 64
PLACE = RemotePlace(ModelUrl.parse(f"https://models.example/zh-en@sha256:{DIGEST}"))


@pytest.mark.parametrize(
    ("cache", "setting", "folder"),
    [
        ("", None, ".cache/translane/models"),
        ("caches", None, ".cache/translane/models"),  # the specification has absolute paths alone
        ("{home}/caches", None, "caches/translane/models"),
        ("{home}/caches", "own", "own"),
    ],
)
def test_bundles_are_below_the_users_folder_of_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: str, setting: str | None, folder: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", cache.format(home=tmp_path))
    chosen = tmp_path / setting if setting else None
    (model,) = remote_models(ServerSettings(model=(PLACE,), model_cache=chosen)).values()
    assert model.folder == tmp_path / folder / "bundles" / DIGEST
