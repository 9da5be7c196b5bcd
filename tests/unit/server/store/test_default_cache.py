"""Where bundles are kept by default."""

from pathlib import Path

import pytest

from translane_server.model_places import ModelPlace
from translane_server.settings import ServerSettings
from translane_server.store.default_cache import default_cache, with_cache


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({}, "~/.cache/translane/models"),
        ({"XDG_CACHE_HOME": ""}, "~/.cache/translane/models"),
        ({"XDG_CACHE_HOME": "caches"}, "~/.cache/translane/models"),  # the specification has absolute paths alone
        ({"XDG_CACHE_HOME": "/caches"}, "/caches/translane/models"),
    ],
)
def test_the_users_cache_folder(environ, folder):
    assert default_cache(environ) == Path(folder)


def test_the_setting_comes_first():
    settings = ServerSettings(model=(ModelPlace(Path("m")),), model_cache=Path("own"))
    assert with_cache(settings, {"XDG_CACHE_HOME": "/caches"}) == settings
    other = settings.model_copy(update={"model_cache": None})
    assert with_cache(other, {"XDG_CACHE_HOME": "/caches"}).model_cache == Path("/caches/translane/models")
