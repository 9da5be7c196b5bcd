"""What lies in a folder of models, and what links of it lead to."""

import errno
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from helpers.refusals import refusal
from helpers.tiny_bundle import put_bundle as put
from translane_server.core.errors import BundleError, SettingsError
from translane_server.models.download import DownloadError, links_of
from translane_server.models.folders import find_models, manifest_names, pinned, versions
from translane_server.settings.model_sources import ModelPlace, ModelUrl


@pytest.mark.parametrize(
    "ascending",
    [
        ["1", "2", "10"],
        ["v1", "v2", "v10"],
        ["1.9.2", "1.10", "1.10.1"],
        ["2024-12-31", "2025-01-01"],
        ["1.0", "1.0-rc1", "1.1"],
        ["next", "1"],
        ["01", "1"],
        ["²", "٣", "8" * 200],
    ],
    ids=str,
)
def test_versions_are_compared_piece_by_piece(tmp_path, ascending):
    for name in ascending:
        put(tmp_path / name)
    assert [folder.name for folder in versions(tmp_path)] == ascending[::-1]


def test_what_is_no_version(tmp_path):
    put(tmp_path / ".3")
    (tmp_path / "2").mkdir()
    (tmp_path / "4").write_text("a file")
    put(tmp_path / "1")
    assert versions(tmp_path) == [tmp_path / "1"]


def test_a_bundle_and_a_folder_of_precisions_are_their_own_versions(tmp_path):
    bundle, several = put(tmp_path / "a"), tmp_path / "b"
    put(several / "fp16")
    put(several / "int8")
    put(bundle / "7")
    assert (versions(bundle), versions(several)) == ([bundle], [several])
    put(tmp_path / "c" / "2" / "int8", name="deep")
    assert versions(tmp_path / "c") == [tmp_path / "c" / "2"]
    assert manifest_names(tmp_path / "c" / "2") == ["deep"]


@pytest.mark.parametrize(("step", "name"), [("stat", "b"), ("iterdir", "b"), ("stat", "b/1")])
def test_what_cannot_be_read_is_not_taken_for_gone(tmp_path, monkeypatch, step, name):
    for version in ("a/1", "a/2", "b/1", "lost+found/1"):
        put(tmp_path / version)
    unread = {tmp_path / "a" / "2", tmp_path / "lost+found"}  # the latter only root reads

    def fails(path, **named):
        if (path.parent if step == "stat" else path) in unread:
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, **named)

    real = getattr(Path, step)
    monkeypatch.setattr(Path, step, fails)
    found = find_models([], tmp_path)
    assert [versions(found[each])[-1].name for each in ("a", "b")] == ["1", "1"]
    unread.add(tmp_path / name)
    with pytest.raises(BundleError, match=f"{name}: it cannot be read: Permission denied"):
        find_models([], tmp_path)


def test_names(tmp_path):
    put(tmp_path / "models" / "b-c" / "1", name="other")
    put(tmp_path / "models" / "a", name="other")
    (tmp_path / "models" / "lost+found").mkdir()
    put(tmp_path / "models" / ".hidden")
    bundle = put(tmp_path / "bundle", name="bundle.1")
    found = find_models([ModelPlace(bundle), ModelPlace(bundle, "again")], tmp_path / "models")
    assert found == {
        "bundle.1": bundle,
        "again": bundle,
        "a": tmp_path / "models" / "a",
        "b-c": tmp_path / "models" / "b-c",
    }


def test_the_highest_version_with_a_readable_manifest_names_the_model(tmp_path):
    put(tmp_path / "1", name="one")
    put(tmp_path / "2", name="two")
    (tmp_path / "2" / "manifest.json").write_text("{")
    assert list(find_models([ModelPlace(tmp_path)])) == ["one"]
    (tmp_path / "1" / "manifest.json").write_text("[")
    with pytest.raises(BundleError, match=r"2: manifest\.json is not JSON"):
        find_models([ModelPlace(tmp_path)])


def test_two_models_have_two_names_and_one_may_lie_in_the_folder_of_models_too(tmp_path):
    one, other = put(tmp_path / "one"), put(tmp_path / "other")
    with pytest.raises(SettingsError, match=r"two models have the name x: .*one and .*other"):
        find_models([ModelPlace(one, "x"), ModelPlace(other, "x")])
    assert find_models([ModelPlace(one, "one")], tmp_path) == {"one": one, "other": other}


@pytest.mark.parametrize("name", ["a", ""])
def test_a_model_that_is_named_twice_is_refused(tmp_path, name):
    folder = put(tmp_path / "one")
    with pytest.raises(SettingsError, match=f"the model {name or 'reference'} is named twice: .*one"):
        find_models([ModelPlace(folder, name), ModelPlace(folder / ".." / "one", name)])
    assert len(find_models([ModelPlace(folder, "a"), ModelPlace(folder, "b")])) == 2


def test_what_a_folder_of_models_may_not_be(tmp_path):
    with pytest.raises(SettingsError, match=r"none: the folder cannot be read: No such file"):
        find_models([], tmp_path / "none")
    with pytest.raises(BundleError, match="there is no such folder"):
        find_models([ModelPlace(tmp_path / "none")])
    with pytest.raises(SettingsError, match="there is no model bundle in this folder"):
        find_models([], tmp_path)
    with pytest.raises(SettingsError, match="this folder is a model bundle itself; name it without --models"):
        find_models([], put(tmp_path / "bundle"))
    put(tmp_path / "a b")
    with pytest.raises(BundleError, match="the name of a model has letters"):
        find_models([], tmp_path)
    with pytest.raises(BundleError, match="name: expected str of length <= 100"):
        find_models([ModelPlace(put(tmp_path / "long", name="x" * 101))])


def test_a_model_that_has_the_name_of_a_precision(tmp_path):
    of_one_model = r"its folders \(int8\) are named after precisions, as those of one model are; name it without"
    put(tmp_path / "int8")
    with pytest.raises(SettingsError, match=of_one_model):
        find_models([], tmp_path)
    put(tmp_path / "zh-en")
    assert find_models([], tmp_path) == {name: tmp_path / name for name in ("int8", "zh-en")}


def test_too_many_models_are_refused(tmp_path):
    for number in range(257):
        (tmp_path / f"m{number}").mkdir()
        (tmp_path / f"m{number}" / "manifest.json").touch()
    with pytest.raises(SettingsError, match="there are 257 models, and a server takes 256 at most"):
        find_models([], tmp_path)


def test_a_link_is_followed_once(tmp_path):
    one, two, link = put(tmp_path / "one"), put(tmp_path / "two"), tmp_path / "link"
    assert pinned(one) == one
    link.symlink_to(one)
    folder = pinned(link)
    link.unlink()
    link.symlink_to(two)
    assert (folder, pinned(link)) == (one.resolve(), two.resolve())


# Addresses of files: spelled as each store wants them, signed with the keys of the environment, and never shown.


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
    assert "hunter2" not in refusal(DownloadError, link, "s3://bucket/zh-en")


def test_without_obstore_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(DownloadError, match=r"obstore is not installed.*install translane\[s3\]"):
        link("s3://bucket/zh-en")
