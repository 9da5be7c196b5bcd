"""Addresses of files: spelled as each store wants them, signed with the keys of the environment, and never shown."""

import subprocess
import sys
from base64 import b64encode
from urllib.parse import parse_qs, urlsplit

import pytest

from translane_server.models.download import DownloadError, links_of
from translane_server.settings.model_sources import ModelUrl

DIGEST = "0123456789abcdef" * 4
KEYS = {"AWS_ACCESS_KEY_ID": "keyname", "AWS_SECRET_ACCESS_KEY": "hunter2", "AWS_REGION": "eu-north-1"}


@pytest.fixture
def keys(monkeypatch):
    pytest.importorskip("obstore", reason="needs the extra s3")
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def link(text, name="weights.bin"):
    return links_of(ModelUrl.parse(text))(name)


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("https://host/models/zh-en", "https://host/models/zh-en/weights.bin"),
        ("https://host/models/zh-en/", "https://host/models/zh-en/weights.bin"),
        ("https://host", "https://host/weights.bin"),
        ("HTTPS://host:8443/a%20b", "https://host:8443/a%20b/weights.bin"),
        ("https://[::1]:8443/a", "https://[::1]:8443/a/weights.bin"),
        ("https://host/a?sig=x&y=z", "https://host/a/weights.bin?sig=x&y=z"),
        ("https://user:word@host/a", "https://host/a/weights.bin"),
        ("http://127.0.0.1:80/a", "http://127.0.0.1:80/a/weights.bin"),
        ("hf://Owner/name", "https://huggingface.co/Owner/name/resolve/main/weights.bin"),
        ("hf://Owner/name@v1.0/a%20b/c", "https://huggingface.co/Owner/name/resolve/v1.0/a%20b/c/weights.bin"),
        ("hf://Owner/name@refs%2Fpr%2F1", "https://huggingface.co/Owner/name/resolve/refs%2Fpr%2F1/weights.bin"),
    ],
)
@pytest.mark.parametrize("digest", ["", f"@sha256:{DIGEST.upper()}"])
def test_the_addresses_of_files(text, file, digest):
    assert link(text + digest).url == file
    assert link(text + digest).is_pinned == bool(digest)
    assert link(text + digest, "a b/ü#?").url == file.replace("weights.bin", "a%20b/%C3%BC%23%3F")


def test_passwords_are_headers(monkeypatch):
    assert link("https://name:h%40x@host/a").headers == {"Authorization": f"Basic {b64encode(b'name:h@x').decode()}"}
    assert not link("https://host/a").headers
    monkeypatch.setenv("HF_TOKEN", "hunter2")
    assert link("hf://owner/name").headers == {"Authorization": "Bearer hunter2"}


def test_another_hub_without_encryption_gets_no_token_and_needs_a_digest():
    program = f"""
from translane_server.settings.model_sources import ModelUrl
from translane_server.models.download import links_of
url, headers, is_pinned = links_of(ModelUrl.parse("hf://owner/name@sha256:{DIGEST}"))("a")
assert (url, headers) == ("http://hub.test/owner/name/resolve/main/a", {{}})
links_of(ModelUrl.parse("hf://owner/name"))("a")
"""
    environ = {"HF_ENDPOINT": "http://hub.test", "HF_TOKEN": "hunter2"}
    run = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True)
    assert run.stderr.endswith("its store is at http://, and http:// needs a digest (@sha256:…)\n")


def test_addresses_of_s3_are_signed(keys):
    parts = urlsplit(link("s3://bucket/models/a%20b/").url)
    assert (parts.scheme, parts.netloc, parts.path) == (
        "https",
        "s3.eu-north-1.amazonaws.com",
        "/bucket/models/a%20b/weights.bin",
    )
    query = parse_qs(parts.query)
    assert query["X-Amz-Credential"][0].startswith("keyname/")
    assert query["X-Amz-Signature"]
    assert "hunter2" not in parts.query


def test_an_endpoint_of_the_environment(keys):
    keys.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    assert urlsplit(link("s3://bucket").url).path == "/bucket/weights.bin"
    keys.setenv("AWS_ENDPOINT_URL", "http://store.test")
    assert urlsplit(link(f"s3://bucket/zh-en@sha256:{DIGEST}").url).netloc == "store.test"
    with pytest.raises(DownloadError, match=r"^its store is at http://, and http:// needs a digest"):
        link("s3://bucket/zh-en")


def test_wrong_settings_are_told_without_them(keys):
    keys.setenv("AWS_ENDPOINT_URL", "hunter2")
    with pytest.raises(DownloadError) as caught:
        link("s3://bucket/zh-en")
    assert "hunter2" not in str(caught.value)


def test_without_obstore_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(DownloadError, match=r"obstore is not installed.*install translane\[s3\]"):
        link("s3://bucket/zh-en")
