"""Addresses of files in S3: signed with the keys of the environment, and never shown."""

import sys
from urllib.parse import parse_qs, urlsplit

import pytest

from translane_server.model_urls import ModelUrl
from translane_server.store.links import links_of
from translane_server.store.problems import DownloadError

DIGEST = "0123456789abcdef" * 4
KEYS = {"AWS_ACCESS_KEY_ID": "keyname", "AWS_SECRET_ACCESS_KEY": "hunter2", "AWS_REGION": "eu-north-1"}


@pytest.fixture(autouse=True)
def _keys(monkeypatch):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


def address(text, name="weights.bin"):
    return urlsplit(links_of(ModelUrl.parse(text))(name).url)


def test_addresses_are_signed():
    pytest.importorskip("obstore", reason="needs the extra s3")
    parts = address("s3://bucket/models/zh-en")
    assert (parts.scheme, parts.netloc, parts.path) == (
        "https",
        "s3.eu-north-1.amazonaws.com",
        "/bucket/models/zh-en/weights.bin",
    )
    query = parse_qs(parts.query)
    assert query["X-Amz-Credential"][0].startswith("keyname/")
    assert query["X-Amz-Signature"]
    assert "hunter2" not in parts.query


def test_an_endpoint_of_the_environment(monkeypatch):
    pytest.importorskip("obstore", reason="needs the extra s3")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    assert address("s3://bucket/zh-en").netloc == "127.0.0.1:9000"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://store.test")
    assert address(f"s3://bucket/zh-en@sha256:{DIGEST}").netloc == "store.test"
    with pytest.raises(DownloadError, match=r"^the endpoint of S3 is http://, and http:// needs a digest"):
        address("s3://bucket/zh-en")


def test_wrong_settings_are_told_without_them(monkeypatch):
    pytest.importorskip("obstore", reason="needs the extra s3")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "hunter2")
    with pytest.raises(DownloadError) as caught:
        address("s3://bucket/zh-en")
    assert "hunter2" not in str(caught.value)


def test_without_obstore_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(DownloadError, match=r"obstore is not installed.*install translane\[s3\]"):
        address("s3://bucket/zh-en")


def test_addresses_of_other_schemes_are_as_they_are():
    link = links_of(ModelUrl.parse("https://name:hunter2@host/zh-en?a=b"))("weights.bin")
    assert link.url == "https://host/zh-en/weights.bin?a=b"
    assert link.headers["Authorization"].startswith("Basic ")
    assert not links_of(ModelUrl.parse("https://host/zh-en"))("weights.bin").headers
