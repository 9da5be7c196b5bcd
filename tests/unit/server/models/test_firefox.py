"""Models of Firefox by their languages, from lists on loopback and in folders."""

from __future__ import annotations

import pytest

from helpers.firefox_list import serving_list
from translane_server.core.errors import BundleError
from translane_server.models import download
from translane_server.models.firefox import look_up

NAME = "firefox:de-en"


@pytest.fixture
def models(monkeypatch):
    monkeypatch.setattr(download, "PAUSE", 0.001)
    with serving_list() as models:
        models.add("model", "model.deen.intgemm.alphas.bin", b"the weights")
        models.add("vocab", "vocab.deen.spm", b"pieces")
        yield models


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


MODEL = {"model.deen.intgemm.alphas.bin": b"the weights", "vocab.deen.spm": b"pieces"}


def test_files_are_fetched_once_and_found_without_the_list(models, tmp_path):
    found = look_up(NAME, models.url, tmp_path)
    assert (found.source, found.target, found.version) == ("de", "en", "1.0")
    assert contents(found.folder(tmp_path)) == MODEL
    asked = len(models.asked)
    assert contents(look_up(NAME, models.url, tmp_path).folder(tmp_path)) == MODEL
    assert len(models.asked) == asked + 2  # the list alone
    url = models.url
    models.records.clear()
    models.files.clear()
    models.shutdown()
    models.server_close()
    assert contents(look_up(NAME, url, tmp_path).folder(tmp_path)) == MODEL


def test_a_folder_and_a_list_in_it_do_as_well(models, tmp_path):
    listed = models.write(tmp_path / "mirror")
    for place in (listed, listed.parent):
        assert contents(look_up(NAME, str(place), tmp_path / "cache").folder(tmp_path / "cache")) == MODEL
    assert models.asked == []


def test_the_highest_whole_version_counts(models, tmp_path):
    for version in ("1.10", "1.9", "1.11a1"):
        models.add("model", "model.deen.intgemm.alphas.bin", version.encode(), version=version)
        models.add("vocab", "vocab.deen.spm", b"pieces", version=version)
    models.add("model", "model.deen.intgemm.alphas.bin", b"alone", version="9.0")
    models.add("qualityModel", "quality.bin", b"of no use", version="1.10")
    found = look_up("firefox:DE-en", models.url, tmp_path)
    assert found.version == "1.11a1"
    models.add("model", "model.deen.intgemm.alphas.bin", b"final", version="1.11")
    models.add("vocab", "vocab.deen.spm", b"pieces", version="1.11")
    assert contents(look_up(NAME, models.url, tmp_path).folder(tmp_path)) == {**MODEL, next(iter(MODEL)): b"final"}


def test_a_file_that_is_not_the_list_s_is_refused_and_not_kept(models, tmp_path):
    place = models.records[0]["attachment"]["location"]
    for other, said in ((b"the Weights", "its sha256 there is"), (b"more weights", "bytes there")):
        models.files[place] = other
        with pytest.raises(BundleError, match=said):
            look_up(NAME, models.url, tmp_path).folder(tmp_path)
        assert not list(tmp_path.glob("*/*.bin"))


@pytest.mark.parametrize(
    "change",
    [
        {"location": "../../etc/passwd"},
        {"location": "/etc/passwd"},
        {"location": "a/../../b"},
        {"location": "http://127.0.0.1/x"},
        {"filename": "../model.bin"},
        {"filename": ".hidden"},
        {"size": 1 << 40},
        {"hash": "../0"},
    ],
)
def test_a_list_that_leads_elsewhere_is_refused(models, tmp_path, change):
    models.records[0]["attachment"] |= change
    with pytest.raises(BundleError, match="the list of Firefox's models is none"):
        look_up(NAME, models.url, tmp_path)


@pytest.mark.parametrize(
    ("name", "path", "said"),
    [
        ("firefox:fr-en", "", "has no such one among its 1 pairs"),
        (NAME, "/other", "cannot be read: the answer is 404 Not Found"),
        (NAME, "none", "cannot be read: No such file or directory"),
    ],
)
def test_what_is_not_there(models, tmp_path, name, path, said):
    address = path if path == "none" else models.url + path
    with pytest.raises(BundleError, match=said):
        look_up(name, address, tmp_path)


def test_a_list_that_others_could_change_is_not_asked_for(tmp_path):
    with pytest.raises(BundleError, match=r"http:// of another machine"):
        look_up(NAME, "http://192.0.2.1/v1/records", tmp_path)
