"""Models of Firefox by their languages, from lists on loopback and in folders."""

import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from helpers.firefox_list import RECORDS, FirefoxList
from translane_server.core.errors import BundleError
from translane_server.models import download
from translane_server.models.firefox import look_up

NAME = "firefox:de-en"


@pytest.fixture
def models(monkeypatch):
    monkeypatch.setattr(download, "PAUSE", 0.001)
    with FirefoxList() as models:
        models.add("model", "model.deen.intgemm.alphas.bin", b"the weights")
        models.add("vocab", "vocab.deen.spm", b"pieces")
        yield models


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


MODEL = {"model.deen.intgemm.alphas.bin": b"the weights", "vocab.deen.spm": b"pieces"}


def test_files_are_fetched_once_and_found_without_the_list(models, tmp_path):
    models.base = models.base.removesuffix("/")  # a slash at its end is not needed
    found = look_up(NAME, models.url, tmp_path)
    assert (found.source, found.target, found.version) == ("de", "en", "1.0")
    assert contents(found.fetched(tmp_path)) == MODEL
    asked = len(models.asked)
    assert contents(look_up(NAME, models.url, tmp_path).fetched(tmp_path)) == MODEL
    assert len(models.asked) == asked + 2  # the list alone
    url = models.url
    models.records.clear()
    models.files.clear()
    models.shutdown()
    models.server_close()
    assert contents(look_up(NAME, url, tmp_path).fetched(tmp_path)) == MODEL


def test_a_folder_and_a_list_in_it_do_as_well(models, tmp_path):
    listed = models.write(tmp_path / "mirror")
    for place in (listed, listed.parent):
        assert contents(look_up(NAME, str(place), tmp_path / "cache").fetched(tmp_path / "cache")) == MODEL
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
    assert contents(look_up(NAME, models.url, tmp_path).fetched(tmp_path)) == {**MODEL, next(iter(MODEL)): b"final"}


def test_a_file_that_is_not_the_list_s_is_refused_and_not_kept(models, tmp_path):
    place = models.records[0]["attachment"]["location"]
    for other, said in ((b"the Weights", "its sha256 there is"), (b"more weights", "bytes there")):
        models.files[place] = other
        with pytest.raises(BundleError, match=said):
            look_up(NAME, models.url, tmp_path).fetched(tmp_path)
        assert not list(tmp_path.glob("*/*.bin"))


WRONG = [
    {"location": "../../etc/passwd"},
    {"location": "/etc/passwd"},
    {"location": "a/../../b"},
    {"location": "http://127.0.0.1/x"},
    {"filename": "../model.bin"},
    {"filename": ".hidden"},
    {"filename": "vocab.deen.spm"},  # the other file's
    {"size": 1 << 40},
    {"hash": "../0"},
]


@pytest.mark.parametrize("change", WRONG)
def test_a_record_that_leads_elsewhere_is_refused_and_costs_its_model_alone(models, tmp_path, change):
    models.add("model", "model.fren.intgemm.alphas.bin", b"others", pair="fr-en")
    models.add("vocab", "vocab.fren.spm", b"others", pair="fr-en")
    attachment = models.records[0]["attachment"]
    models.records[0]["attachment"] = attachment | change
    with pytest.raises(BundleError, match=r"list of Firefox's models cannot be read: (its records of|two files of) "):
        look_up(NAME, models.url, tmp_path)
    assert look_up("firefox:fr-en", models.url, tmp_path).source == "fr"
    models.records[0]["attachment"] = attachment
    assert look_up(NAME, models.url, tmp_path).source == "de"
    models.records[0]["attachment"] = attachment | change
    for name in (NAME, "firefox:fr-en", NAME):  # the last list that was right about it holds
        assert look_up(name, models.url, tmp_path).source == name[-5:-3]


@pytest.mark.parametrize("records", [[], {}, None, "a", 7, [[]], [{"fileType": "model"}]])
def test_what_is_no_list_does_not_take_the_place_of_the_last_one(models, tmp_path, records, capsys):
    assert contents(look_up(NAME, models.url, tmp_path).fetched(tmp_path)) == MODEL
    models.records = records
    assert contents(look_up(NAME, models.url, tmp_path).fetched(tmp_path)) == MODEL
    assert "; the last one holds" in capsys.readouterr().err
    with pytest.raises(BundleError, match=r"cannot be read: it (is none|has no models)"):
        look_up(NAME, models.url, tmp_path / "other")


def test_several_programs_fetch_a_model_at_once(models, tmp_path):
    models.meeting = threading.Barrier(2)
    found = look_up(NAME, models.url, tmp_path)
    with ThreadPoolExecutor(2) as threads:
        folders = [threads.submit(found.fetched, tmp_path) for _ in range(2)]
    assert [contents(folder.result()) for folder in folders] == [MODEL] * 2


def test_a_mirror_s_pipe_is_not_waited_for(models, tmp_path):
    listed = models.write(tmp_path / "mirror")
    (path := listed.parent / models.records[0]["attachment"]["location"]).unlink()
    os.mkfifo(path)
    with pytest.raises(BundleError, match="it is a named pipe, not a file"):
        look_up(NAME, str(listed), tmp_path).fetched(tmp_path)


def test_a_list_whose_packets_are_dropped_is_soon_given_up(models, tmp_path, monkeypatch):
    look_up(NAME, models.url, tmp_path)
    address = models.server_address
    monkeypatch.setattr(download, "CONNECTING", 0.1)
    models.shutdown()
    models.server_close()
    with socket.socket() as deaf, ExitStack() as waiting:  # whose queue of connections is full
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        deaf.bind(address)
        deaf.listen(0)
        for _ in range(2):
            first = waiting.enter_context(socket.socket())
            first.setblocking(False)
            first.connect_ex(address)
        begin = time.monotonic()
        assert look_up(NAME, f"http://127.0.0.1:{address[1]}{RECORDS}", tmp_path).version == "1.0"
        with pytest.raises(BundleError, match="its server does not answer, 5 times"):
            look_up(NAME, f"http://127.0.0.1:{address[1]}{RECORDS}", tmp_path / "other")
        assert time.monotonic() - begin < 10


@pytest.mark.parametrize(
    ("name", "address", "said"),
    [
        ("firefox:fr-en", "{url}", "has no such one among its 1 pairs"),
        (NAME, "{url}/other", "cannot be read: the answer is 404 Not Found"),
        (NAME, "none", "cannot be read: No such file or directory"),
        (NAME, "http://192.0.2.1/v1/records", "http:// of another machine"),  # which others could change
    ],
)
def test_what_is_not_there_or_not_asked_for(models, tmp_path, name, address, said):
    with pytest.raises(BundleError, match=said):
        look_up(name, address.format(url=models.url), tmp_path)
